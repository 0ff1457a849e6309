"""Mutations of C as text: one condition, constant, field, operator or statement at a time. For scripts/mutants."""
import hashlib
import re

import ctext

RELATIONS = {"<": ["<=", ">="], "<=": ["<", ">"], ">": [">=", "<="], ">=": [">", "<"], "==": ["!="], "!=": ["=="]}
LOGIC = {"&&": ["||"], "||": ["&&"]}
OPERATORS = {"+": ["-"], "-": ["+"], "|": ["&"], "&": ["|"], "+=": ["-="], "-=": ["+="], "|=": ["&="], "&=": ["|="], "++": ["--"],
             "--": ["++"], "<<": [">>"], ">>": ["<<"], "*": ["/"], "/": ["*"], "%": ["/"]}
KINDS = ["condition", "constant", "field", "operator", "statement"]
CONSTANT_NAME = re.compile(r"[A-Z][A-Z0-9_]*[A-Z0-9]$")
NO_CONSTANT = {"NULL", "INT32_MAX", "UINT32_MAX", "UINT64_MAX", "UINT64_C", "INT64_MAX"}


class Mutation:
    """`text[at:end]` of `path` becomes `new`."""

    def __init__(self, path, source, token, end, kind, new, change):
        self.path, self.at, self.end, self.kind, self.new, self.change = path, token.at, end, kind, new, change
        self.function = token.function or "(top)"
        self.line = token.line
        self.code = source[token.line].strip()
        self.key = None

    def apply(self, text):
        return text[:self.at] + self.new + text[self.end:]


def ends_operand(t):
    return t.kind in ("name", "number") and t.text not in ctext.KEYWORDS or t.text in (")", "]")


def simple_statement(found, i):
    """The index of the ';' that ends the statement which begins at i; None if it is a declaration or not simple."""
    first, second = found[i], found[i + 1]
    if first.text in ("return", "break", "continue"):
        if first.text == "return" and second.text != ";":
            return None
    elif first.kind == "name":
        if first.text in ctext.KEYWORDS or first.text in ctext.TYPES or second.text not in ("(", "->", ".", "[", "=", "++", "--", "+=",
                                                                                              "-=", "|=", "&=", "^=", "<<=", ">>="):
            return None
    elif first.text not in ("*", "++", "--"):
        return None
    j, depth = i, 0
    while j < len(found):
        text = found[j].text
        if found[j].kind == "op":
            if text in ctext.OPEN:
                depth += 1
            elif text in ctext.CLOSE:
                depth -= 1
            if depth < 0:
                return None
            if text == ";" and not depth:
                return j
        j += 1
    return None


def begins_statement(found, i):
    before = found[i - 1].text
    if found[i].level:
        return False
    if before in (";", "{", "}", "else", "do"):
        return True
    if before == ":":
        return found[i - 3].text == "case" or found[i - 2].text == "default"
    if before != ")":
        return False
    return found[ctext.opener(found, i - 1) - 1].text in ("if", "while", "for", "switch")


def fields_of(found):
    """Of each name, the fields that are asked of it in this file."""
    fields = {}
    for i in range(2, len(found)):
        if found[i].kind == "name" and found[i - 1].text in ("->", ".") and found[i - 2].kind == "name" and found[i + 1].text != "(":
            fields.setdefault(found[i - 2].text, set()).add(found[i].text)
    return fields


def of_file(path, text):
    found = ctext.levels(ctext.name_functions(ctext.tokens(text)))
    hidden = ctext.no_protocol(found)
    source = ctext.lines_of(text)
    fields = fields_of(found)
    out, define_line = [], 0

    def add(i, end_index, kind, new, change):
        end = found[end_index]
        out.append(Mutation(path, source, found[i], end.at + len(end.text), kind, new, change))

    for i, t in enumerate(found):
        if t.kind == "define":
            define_line = t.line
            continue
        in_define = not t.function and t.line == define_line
        if i in hidden or not (t.function or in_define) or i + 1 >= len(found):
            continue
        if t.kind == "op" and t.function:
            binary = ends_operand(found[i - 1])
            for new in RELATIONS.get(t.text, []) + LOGIC.get(t.text, []):
                add(i, i, "condition", new, f"{t.text} to {new}")
            if t.text == "!":
                out.append(Mutation(path, source, t, t.at + 1, "condition", "", "! dropped"))
            if t.text in ("++", "--") or binary:
                for new in OPERATORS.get(t.text, []):
                    add(i, i, "operator", new, f"{t.text} to {new}")
        if t.kind == "name" and t.function and t.text in ("if", "while") and found[i + 1].text == "(":
            end = ctext.partner(found, i + 1)
            inner = text[found[i + 1].at:found[end].at + 1]
            out.append(Mutation(path, source, found[i + 1], found[end].at + 1, "condition", f"(!{inner})", f"{t.text} negated"))
        if t.kind == "number" and re.fullmatch(r"(0x[0-9a-fA-F]+|0|[1-9][0-9]*)[uUlL]*", t.text) and found[i - 1].text != "[":
            add(i, i, "constant", f"({t.text} + 1)", f"{t.text} to {t.text} + 1")
            if int(re.sub("[uUlL]", "", t.text), 0):
                add(i, i, "constant", f"({t.text} - 1)", f"{t.text} to {t.text} - 1")
        if t.kind == "name" and t.text in ("true", "false"):
            other = "false" if t.text == "true" else "true"
            add(i, i, "constant", other, f"{t.text} to {other}")
        if t.kind == "name" and t.function and CONSTANT_NAME.match(t.text) and t.text not in NO_CONSTANT and found[i + 1].text != "(":
            add(i, i, "constant", f"({t.text} + 1)", f"{t.text} to {t.text} + 1")
        if t.kind == "name" and t.function and found[i - 1].text in ("->", ".") and found[i - 2].kind == "name" \
                and found[i + 1].text != "(":
            for other in sorted(fields[found[i - 2].text] - {t.text}):
                add(i, i, "field", other, f"{t.text} to {other}")
        if t.function and begins_statement(found, i):
            end = simple_statement(found, i)
            if end is not None and end not in hidden:
                add(i, end, "statement", ";", "statement dropped")
    return number(out)


def number(mutations):
    """A key of each that stays the same while its line does, wherever that is."""
    seen = {}
    for m in mutations:
        what = "\t".join([m.path, m.function, m.code, m.kind, m.change])
        seen[what] = seen.get(what, 0) + 1
        m.key = hashlib.sha1(f"{what}\t{seen[what]}".encode()).hexdigest()[:10]
    return mutations
