#!/usr/bin/env python3
"""lessons.py SCRIPT_TEST: the conversations in docs/lessons.md, each as a script of its own."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / 'docs/lessons.md'


def main():
    sections = DOCUMENT.read_text(encoding='utf-8').split('\n## ')[1:]
    lessons = [section.partition('. ')[::2] for section in sections if section[0].isdigit()]
    with tempfile.TemporaryDirectory() as folder:
        scripts, without = [], []
        for number, text in lessons:
            found = re.findall(r'^```script\n(.*?)^```$', text, re.M | re.S)
            if not found:
                without.append(number)
            for i, script in enumerate(found):
                path = pathlib.Path(folder, 'lessons', f'{int(number):02}_{i + 1}.script')
                path.parent.mkdir(exist_ok=True)
                path.write_text(script)
                scripts.append(path)
        if without or len(lessons) != 10:
            print(f'docs/lessons.md has {len(lessons)} lessons, of which these have no script: {without}')
            return 1
        own = {name: value for name, value in os.environ.items() if name != 'GTEST_OUTPUT'}  # its file is that of `script`
        return subprocess.run([sys.argv[1], '--gtest_filter=lessons.*', *scripts], env=own, check=False).returncode


if __name__ == '__main__':
    sys.exit(main())
