"""Where functions begin and how long they are: (line, title, lines)."""
import ast
import re

_CONTROL = re.compile(r'\b(if|for|while|switch|catch|else|do|try|return)\b')
_SCOPE = re.compile(r'\b(namespace|struct|class|union|enum|extern\s+"C")\b')


def _without_text(source):
    """The source with comments, strings and characters blanked, lines kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
                         re.S)
    return pattern.sub(lambda found: re.sub(r'[^\n]', ' ', found.group(0)), source)


def _without_directives(source):
    """Preprocessor lines and what continues them blanked, since macros may hold half a block."""
    return re.sub(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', lambda found: re.sub(r'[^\n]', ' ', found.group(0)), source,
                  flags=re.M)


def of_cpp(source):
    """Bodies that stand at namespace or class scope. Lambdas count as part of the function around them."""
    text = _without_directives(_without_text(source))
    stack, begin, line = [], 0, 1
    for at, char in enumerate(text):
        if char == '\n':
            line += 1
        elif char == ';' and all(kind == 'scope' for kind, _, _ in stack):
            begin = at + 1
        elif char == '{':
            head = text[begin:at].strip()
            in_function = any(kind == 'function' for kind, _, _ in stack)
            is_scope = _SCOPE.search(head.split('(')[0]) and not in_function and ')' not in head.split('{')[-1][-3:]
            kind = 'block' if in_function else 'scope' if is_scope or '(' not in head else 'function'
            title = re.sub(r'\s+', ' ', head)[-80:]
            start = line - text[begin:at].lstrip().count('\n')
            stack.append((kind, start, title))
            begin = at + 1
        elif char == '}' and stack:
            kind, start, title = stack.pop()
            begin = at + 1
            if kind == 'function' and not _CONTROL.match(title):
                yield start, title, line - start + 1


def of_python(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.name, node.end_lineno - node.lineno + 1


def of_shell(source):
    """Functions written `name() {` with the closing brace in the first column."""
    start = title = None
    for number, line in enumerate(source.split('\n'), 1):
        found = re.match(r'(\w+)\(\) \{', line)
        if found and not line.rstrip().endswith('}'):
            start, title = number, found.group(1)
        elif line == '}' and start:
            yield start, title, number - start + 1
            start = None
