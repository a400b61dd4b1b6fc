"""Words of plain English (STYLE.md): phrases that a native reader stumbles over, with what to write instead.

Looks at Markdown outside code and struck-through text, at comments and string literals of C++, and at every line of
other sources. PHRASES is the list; each row has a sample that its pattern must find, or the check itself fails.
"""
import pathlib
import re

# Where the check holds: files at the top level ('') and below these folders.
ENFORCED = ('', 'docs', 'config', 'examples', 'apps', 'bench', 'drivers', 'tests', 'lib', 'tools')

# Pattern (a space stands for any white space; a match of the group `good` is fine), a sample, what to write instead.
PHRASES = [
    (r'\b(comes?|came|coming) about\b', 'as they come about', '"occur", "are generated"'),
    (r'\bfor want of\b', 'lost for want of receives', '"because there is no", "without"'),
    (r'\bin vain\b', 'polled in vain', '"without success", or name the result: "an empty poll"'),
    (r'\bwhom\b', 'for whom it waits', 'a sentence whose subject is named: "the client that ..."'),
    (r'\bso many\b(?! (that|as))', 'one part in so many', 'the number, or "that many"'),
    (r'\bso much\b(?! (that|as))', 'so much at once', 'the amount, or "that much"'),
    (r'(?P<good>\b[Tt]here )?\b(is|are) no (?!longer|more|less|different|reason)\w', 'this is no flag',
     '"is not a", "are not"'),
    (r'\bwhat is left\b', 'of what is left', '"the rest", "the remaining ..."'),
    (r'\bthe other way round\b', 'and the other way round', '"vice versa", "conversely"'),
    (r'\b(?:has|have|had) room for no\b', 'the ring has room for no more', '"is full", "cannot hold another ..."'),
    (r'\bmeanwhile[.;:)]', 'as it was removed meanwhile.', '"in the meantime" before the verb, or "while ..."'),
    (r'(?P<good>\b[Ss]uch )?\bas \w+(::\w+)?(\(\))? (says|tells)\b', 'False: as Port says', 'the condition itself'),
    (r'(^[^\S\n]*|[.:] )The same[.,;:]', '/// The same, now.', 'the condition itself'),
    (r'\b(is|are) asked of\b', 'It is asked of the process', '"is requested from", "is checked in"'),
    (r'\bwho(ever)? (may|waits?|yields?|asks?|gets|polls|posts|sends|answers|shares|wants)\b', 'who yields goes back',
     'the noun: "a client that ..."'),
    (r'\bbeside\b', 'a flag beside the doorbells', '"next to", "besides", "in addition to"'),
    (r'\bbehind (that|this|these|those|it|its|each|every|another|which|what|the (last|first|header|list|end|tags?))\b',
     'frames behind that one', '"after", "following"'),
    (r'\b(is|are|be|was|were|been) told\b', 'the peer is told', '"is notified", "is informed", "receives"'),
    (r'\b(tells?|told) of\b', 'what it tells of itself', '"reports", "lists"'),
    (r'\b(one|two|lines?|rows?|bytes|timers?) (?-i:an?) (port|worker|QP|packet|message|file|line|session|user|breach)\b',
     'one line a breach', '"per"'),
    (r'\b(is|are) spoken\b', 'version 2 is spoken', '"is used"'),
    (r'\bnot any more\b', 'not any more', '"no longer"'),
    (r'\b[Aa]skers?\b', 'which objects an asker sees', '"the caller", "the client"'),
    (r'\bhears? of\b', 'as the link hears of them', '"sees", "receives", "is notified of"'),
    (r'\bsomebody\b', 'somebody waits', 'the noun: "a client", "another thread"'),
    (r'\bnobody (told|asked|wants)\b', 'an event that nobody asked for', '"without a request", "is not notified"'),
    (r'\basleep\b', 'while the worker is asleep', '"sleeping", "idle", "blocked"'),
    (r'\bpatience\b', 'beyond the patience of the peer', '"timeout", "stall budget"'),
    (r'\bof no use\b', 'of no use in the child', '"useless", "cannot be used"'),
]
PATTERNS = [(re.compile(pattern.replace(' ', r'\s+'), re.M | re.I), advice) for pattern, _, advice in PHRASES]
CPP_TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'', re.S)
LINE_BEGIN = re.compile(r'^[ \t]*(///?<?|//!|#|\*)[ \t]?', re.M)


def _blank(match):
    """Spaces of the same shape, so that line numbers stay."""
    return re.sub(r'[^\n]', ' ', match.group())


def _markdown(text):
    text = re.sub(r'^ *```.*?^ *```', _blank, text, flags=re.M | re.S)
    return re.sub(r'`[^`]*`|~~.*?~~|\]\([^)]*\)', _blank, text, flags=re.S)


def _cpp(text):
    """Comments and strings; the code between them becomes blank, and '.' keeps their sentences apart."""
    out, at = [], 0
    for token in CPP_TOKENS.finditer(text):
        out.append(re.sub(r'\S', ' ', text[at:token.start()]))
        out.append(token.group() if token.group()[0] in '/R' else token.group()[1:-1].join('..'))
        at = token.end()
    out.append(re.sub(r'\S', ' ', text[at:]))
    return ''.join(out)


def _prose(name, text):
    suffix = pathlib.PurePath(name).suffix
    if suffix == '.md':
        return _markdown(text)
    if suffix in ('.cc', '.h'):
        text = _cpp(text)
    return LINE_BEGIN.sub(lambda match: ' ' * len(match.group()), text)


def findings(name, text):
    prose = _prose(name, text)
    for pattern, advice in PATTERNS:
        for match in pattern.finditer(prose):
            if match.groupdict().get('good'):
                continue
            line = prose.count('\n', 0, match.end()) + 1
            yield line, ' '.join(match.group().split()), advice


def _enforced(name):
    return any(name == place or (name.startswith(place + '/') if place else '/' not in name) for place in ENFORCED)


def breaches(files):
    for (pattern, _), (source, sample, _) in zip(PATTERNS, PHRASES):
        if not pattern.search(_prose('sample.h', '/// ' + sample.removeprefix('/// ') + '.')):
            yield f'tests/tidy/english.py: {source} does not find its sample "{sample}"'
    for name, text in files.items():
        if not _enforced(name) or name in ('LICENSE', '.clang-format') or name == 'tests/tidy/english.py':
            continue
        for line, found, advice in findings(name, text):
            yield f'{name}:{line}: "{found}" is not plain English; write {advice}'
