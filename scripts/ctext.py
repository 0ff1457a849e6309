"""C as text: tokens, bodies of functions, and the parts of them that are no protocol. For scripts/mutants and scripts/coverage."""
import re

TOKEN = re.compile(r"""
    (?P<blank>[ \t\r\n]+|//[^\n]*|/\*.*?\*/|\\\n)
  | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
  | (?P<number>\.?[0-9][0-9a-zA-Z_.]*)
  | (?P<name>[A-Za-z_][A-Za-z_0-9]*)
  | (?P<op><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||\+=|-=|\*=|/=|%=|&=|\|=|\^=|[-+*/%&|^~!<>=?:;,.(){}\[\]\#])
  | (?P<other>.)""", re.X | re.S)
OPEN, CLOSE = "([{", ")]}"
KEYWORDS = {"if", "else", "while", "for", "do", "switch", "case", "default", "return", "break", "continue", "goto", "sizeof"}
TYPES = {"void", "bool", "char", "int", "unsigned", "long", "short", "signed", "float", "double", "struct", "union", "enum", "const",
         "static", "extern", "inline", "register", "volatile", "size_t", "ssize_t"}
# Calls whose arguments decide nothing: assertions, texts, and mistakes on purpose, which sound designs do not make.
NO_PROTOCOL = {"assert", "static_assert", "_Static_assert", "snprintf", "fprintf", "explain", "MISTAKE", "MISTAKES"}
# Counters that are shown and never asked.
COUNTERS = {"drops", "counts"}


class Token:
    __slots__ = ("kind", "text", "at", "line", "function", "level")

    def __init__(self, kind, text, at, line):
        self.kind, self.text, self.at, self.line, self.function, self.level = kind, text, at, line, None, 0


def tokens(text):
    """All tokens but blanks and preprocessor lines other than '#define NAME value', whose value is kept."""
    found, line, at, skip_to = [], 1, 0, -1
    while at < len(text):
        m = TOKEN.match(text, at)
        kind, word = m.lastgroup, m.group()
        if kind == "op" and word == "#" and text[text.rfind("\n", 0, at) + 1:at].strip() == "":
            end = at
            while True:
                end = text.find("\n", end)
                end = len(text) if end < 0 else end
                if text[end - 1] != "\\":
                    break
                end += 1
            define = re.match(r"#[ ]*define[ ]+\w+[ ]+", text[at:end])
            skip_to = at + define.end() if define and "do {" not in text[at:end] else end
            line += text.count("\n", at, skip_to)
            if define:
                found.append(Token("define", "#define", at, line))
            at = skip_to
            continue
        if kind != "blank":
            found.append(Token(kind, word, at, line))
        line += word.count("\n")
        at = m.end()
    return found


def partner(found, i):
    """The index of the bracket that closes the one at i."""
    depth = 0
    for j in range(i, len(found)):
        if found[j].text in OPEN and found[j].kind == "op":
            depth += 1
        elif found[j].text in CLOSE and found[j].kind == "op":
            depth -= 1
            if not depth:
                return j
    return len(found) - 1


def opener(found, i):
    """The index of the '(' that the ')' at i closes."""
    depth, j = 0, i
    while j >= 0:
        depth += found[j].text == ")"
        depth -= found[j].text == "("
        if not depth:
            break
        j -= 1
    return j


def name_functions(found):
    """Gives every token of a body its function's name. A body is a '{' at the top that follows a ')'."""
    i = 0
    while i < len(found):
        if found[i].text == "{" and found[i].kind == "op":
            end = partner(found, i)
            if i and found[i - 1].text == ")":
                j = opener(found, i - 1)
                name = found[j - 1].text if j else "?"
                for k in range(i, end + 1):
                    found[k].function = name
            i = end
        i += 1
    return found


def levels(found):
    """Gives every token the number of open '(' and '[' before it."""
    level = 0
    for t in found:
        t.level = level
        if t.kind == "op":
            level += t.text in "(["
            level -= t.text in ")]"
    return found


def no_protocol(found, more=frozenset()):
    """Indexes of the tokens inside of NO_PROTOCOL calls, of `more` ones, and of statements that only raise a counter."""
    inside = set()
    for i, t in enumerate(found):
        if t.kind == "name" and (t.text in NO_PROTOCOL or t.text in more) and i + 1 < len(found) and found[i + 1].text == "(":
            inside.update(range(i, partner(found, i + 1) + 1))
        if t.kind == "name" and t.text in COUNTERS and found[i - 1].text in ("->", "."):
            j = i
            while found[j].text not in (";", "{", "}"):
                inside.add(j)
                j += 1
            j = i
            while found[j].text not in (";", "{", "}") and not (found[j].text == ")" and found[j + 1].kind == "name"):
                inside.add(j)
                j -= 1
    return inside


def lines_of(text):
    return [""] + text.split("\n")


class Users:
    """Which functions and macros of headers use a function of a header: how far a change of one reaches."""
    MACRO = re.compile(r"^#[ ]*define[ ]+(\w+)((?:.*\\\n)*.*)$", re.M)

    def __init__(self, texts):
        self.users = {}
        for text in texts:
            for t in name_functions(tokens(text)):
                if t.kind == "name" and t.function:
                    self.users.setdefault(t.text, set()).add(t.function)
            for macro, body in self.MACRO.findall(text):
                for name in re.findall(r"[A-Za-z_]\w*", body):
                    self.users.setdefault(name, set()).add(macro)

    def of(self, name):
        reached, todo = {name}, [name]
        while todo:
            for user in self.users.get(todo.pop(), ()):
                if user not in reached:
                    reached.add(user)
                    todo.append(user)
        return reached
