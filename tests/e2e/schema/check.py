"""Reads [[NAME, VALUE], ...] as JSON and says where a value differs from docs/urocectl.schema.json, its definition NAME.
An object may have no field that the schema lacks. Runs with Debian's Python, whose package jsonschema is installed."""
import json
import sys

import jsonschema


def strict(node):
    """The schema with objects that have no further fields."""
    if isinstance(node, list):
        return [strict(each) for each in node]
    if not isinstance(node, dict):
        return node
    out = {key: strict(value) for key, value in node.items()}
    if isinstance(node.get('properties'), dict) and 'required' in node:
        out.setdefault('additionalProperties', False)
    return out


def main():
    with open(sys.argv[1], encoding='utf-8') as file:
        schema = json.load(file)
    jsonschema.Draft202012Validator.check_schema(schema)
    definitions = strict(schema)['$defs']
    for name, value in json.load(sys.stdin):
        validator = jsonschema.Draft202012Validator({'$defs': definitions, '$ref': f'#/$defs/{name}'})
        for error in validator.iter_errors(value):
            print(f'{name}: {error.json_path}: {error.message[:300]}')


main()
