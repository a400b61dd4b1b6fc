#!/usr/bin/env python3
"""embed.py OUTPUT HTML CSS JS...: writes the page of `urocectl web` as one C++ source. Style and scripts go into the page, and
their hashes into its Content-Security-Policy, so that the browser runs nothing else."""
import base64
import hashlib
import pathlib
import sys


def hash_of(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def main():
    output, html, css, *scripts = map(pathlib.Path, sys.argv[1:])
    style = css.read_text(encoding='utf-8')
    script = "'use strict';\n(() => {\n" + '\n'.join(path.read_text(encoding='utf-8') for path in scripts) + '})();\n'
    page = html.read_text(encoding='utf-8').replace('{style}', style).replace('{script}', script)
    if '</script' in script or '</style' in style:
        sys.exit('embed.py: the script or the style ends its own element')
    policy = (f"default-src 'none'; script-src {hash_of(script)}; style-src {hash_of(style)}; connect-src 'self'; img-src data:; "
              "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
    data = page.encode()
    rows = [','.join(map(str, data[at:at + 32])) for at in range(0, len(data), 32)]
    output.write_text('#include "web_page.h"\n\nnamespace uroce::ctl {\n\n'
                      f'const char kPagePolicy[] = "{policy}";\n'
                      'const unsigned char kPageText[] = {\n' + ',\n'.join(rows) + '};\n'
                      'const std::size_t kPageBytes = sizeof kPageText;\n\n}  // namespace uroce::ctl\n')


main()
