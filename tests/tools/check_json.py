#!/usr/bin/env python3
"""check_json.py cli/JSON.md FILE...: holds what `--json` printed against the tables that document it.

Every printed field must be documented for its schema, with that type; every documented field that is not optional must be there; and
every documented name must be a literal of the sources in cli/ (an optional one may be missing from all the files given). Says what is
wrong, a line each, and exits 1.
"""
import glob
import json
import os
import re
import sys

ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \|.*\|$")
DIGEST = re.compile(r"^[0-9a-f]{16}$")


def read_tables(path):
    """{section: {field: (type, optional)}}; a section is a schema or the name after "object"."""
    tables, section = {}, None
    with open(path, encoding="utf-8") as f:
        for line in f:
            if line.startswith("## "):
                section = tables.setdefault(line[3:].strip(), {})
            row = ROW.match(line.rstrip("\n"))
            if row and section is not None and row[1] != "field" and not row[1].startswith("---"):
                kind = re.sub(r"\[([a-z]+)\]\([^)]*\)", r"@\1", row[2])
                section[row[1]] = (kind.removesuffix(", optional"), kind.endswith(", optional"))
    return tables


class Check:
    def __init__(self, tables):
        self.tables, self.wrong = tables, {}

    def say(self, what):
        self.wrong[what] = None

    def object(self, section, prefix, value, where):
        fields = self.tables[section]
        for name, (_, optional) in fields.items():
            parent, _, last = name.rpartition(".")
            if parent == prefix and not optional and last not in value:
                self.say(f"{where}: no field '{name}'")
        for name, v in value.items():
            field = f"{prefix}.{name}" if prefix else name
            if field not in fields:
                self.say(f"{where}: '{field}' is not documented in the table of {section}")
            else:
                self.value(section, field, fields[field][0], v, where)

    def value(self, section, field, kind, v, where):
        nullable, kind = kind.endswith(" or null"), kind.removesuffix(" or null")
        if v is None and nullable:
            return
        good = True
        if kind.startswith("list of "):
            good = isinstance(v, list)
            for x in v if good else []:
                self.value(section, field + "[]", kind.removeprefix("list of "), x, where)
        elif kind.startswith("map of "):
            good = isinstance(v, dict)
            for x in v.values() if good else []:
                self.value(section, field, kind.removeprefix("map of "), x, where)
        elif kind.startswith("@"):
            good = isinstance(v, dict)
            if good:
                self.object("object " + kind[1:], "", v, where)
        elif kind == "object":
            good = isinstance(v, dict)
            if good:
                self.object(section, field, v, where)
        elif kind == "digest":
            good = isinstance(v, str) and DIGEST.match(v) is not None
        elif kind == "real":
            good = isinstance(v, float) or v in ("NaN", "Inf", "-Inf")
        elif kind in ("text", "whole", "bool"):
            good = type(v) is {"text": str, "whole": int, "bool": bool}[kind]
        else:
            self.say(f"the table of {section}: '{field}' has the unknown type '{kind}'")
        if not good:
            self.say(f"{where}: '{field}' is {json.dumps(v)[:40]}, not {kind}")


def main():
    doc, files = sys.argv[1], sys.argv[2:]
    check = Check(read_tables(doc))
    seen = set()
    for path in files:
        with open(path, encoding="utf-8") as f:
            value = json.load(f)
        schema = value.get("schema")
        if schema not in check.tables:
            check.say(f"{path}: schema '{schema}' is not documented")
            continue
        seen.add(schema)
        check.object(schema, "", value, os.path.basename(path))
    sources = ""
    for path in glob.glob(os.path.join(os.path.dirname(doc), "*.c")):
        with open(path, encoding="utf-8") as f:
            sources += f.read()
    for section, fields in check.tables.items():
        if fields and section.startswith("driftscope.") and section not in seen:
            check.say(f"no file of schema {section} was given")
        for name in fields:
            if f'"{name.rpartition(".")[2]}"' not in sources:
                check.say(f"{section}: nothing in the sources prints '{name}'")
    for what in check.wrong:
        print(what)
    sys.exit(1 if check.wrong else 0)


main()
