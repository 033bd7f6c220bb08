"""Compile the schemas of JSON Schema's official test suite, and compare what they allow with the suite's verdicts.

    tar xf jsonschema-4.23.0.tar.gz   # the source distribution of jsonschema, from PyPI, contains the suite
    python bench/json_schema_suite.py jsonschema-4.23.0/json/tests/draft2020-12 [DRAFT ...] [--verbose]

Every schema is compiled as a schema of an answer, but for the closing of objects, which the standard does not know.
A refused schema has to name a keyword. Of a compiled one, valid values have to be allowed; invalid ones have to be
forbidden unless the schema has a keyword that is passed over (``pumice.grammar.keywords.KEYWORDS``).
"""

import argparse
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llguidance import LLMatcher

from pumice.errors import RequestError
from pumice.grammar import JSON_OPTIONS, check_schema, enforceable, schema_source
from pumice.grammar.check import describe
from pumice.grammar.vocabulary import small_vocabulary

MAX_ORDERS = 120  # of the keys of an object, since a grammar knows one order


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drafts", nargs="+", type=Path, help="folders of the suite")
    parser.add_argument("--verbose", action="store_true", help="print the refused schemas and the invalid values")
    options = parser.parse_args()
    counts, refusals = Counter[str](), Counter[str]()
    for path in sorted(path for draft in options.drafts for path in draft.rglob("*.json")):
        for group in json.loads(path.read_text()):
            name = f"{path.relative_to(path.parents[1])}: {group['description']}"
            for outcome, text in outcomes(group):
                counts[outcome] += 1
                refusals[text[:60]] += outcome == "refused"
                if outcome == "valid, forbidden" or options.verbose:
                    print(f"{outcome}: {name}: {text}")
    print(*(f"{n:6} {outcome}" for outcome, n in sorted(counts.items())), sep="\n")
    print("refused:", *(f"{n:6} {text}" for text, n in refusals.most_common() if n), sep="\n")
    return bool(counts["valid, forbidden"])


def outcomes(group: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what became of a schema and of its values."""
    schema = group["schema"]
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    try:
        check_schema("schema", schema)
    except RequestError as error:
        yield "refused", str(error)
        return
    source = schema_source(enforceable(schema), JSON_OPTIONS)
    matcher = LLMatcher(small_vocabulary(), source, log_level=0)
    if matcher.is_error():
        empty = "Unsatisfiable" in matcher.get_error() and not any(test["valid"] for test in group["tests"])
        yield "no value" if empty else "refused", describe(matcher.get_error())
        return
    yield "compiled", ""
    for test in group["tests"]:
        allowed = any(_allows(matcher, text) for text in texts(test["data"]))
        kind = f"{'valid' if test['valid'] else 'invalid'}, {'allowed' if allowed else 'forbidden'}"
        yield kind, f"{json.dumps(test['data'])[:80]} of {json.dumps(schema)[:200]}"


def texts(value: Any) -> Iterator[str]:
    """Yield a value as JSON, with the keys of its objects in several orders."""
    for order in itertools.islice(orders(value), MAX_ORDERS):
        yield json.dumps(order, ensure_ascii=False)


def orders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for keys in itertools.permutations(value):
            for values in itertools.product(*([*orders(value[key])] for key in keys)):
                yield dict(zip(keys, values, strict=True))
    elif isinstance(value, list):
        yield from map(list, itertools.product(*([*orders(part)] for part in value)))
    else:
        yield int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _allows(matcher: LLMatcher, text: str) -> bool:
    copy, tokens = matcher.deep_copy(), list(text.encode("utf-8", "surrogatepass"))
    return bool(copy.validate_tokens(tokens) == len(tokens) and copy.consume_tokens(tokens) and copy.is_accepting())


if __name__ == "__main__":
    raise SystemExit(main())
