"""What opens doors: keys by their providers' prefixes, tokens, private keys, and passwords that are called so."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from compliance.pii.findings import Finding
from compliance.pii.recognizers.base import IN_CONTEXT, SURE_SHAPE, Context, matches
from compliance.pii.recognizers.shapes import Shape

ENTITY = "SECRET"
# Each provider's own documented form, with at least as much behind the prefix as a key has.
PROVIDERS = (
    *(r"sk-(?:proj-|ant-|live-)?[A-Za-z0-9_-]{20,200}", r"bsk_[A-Za-z0-9_-]{43}", r"bwt_[A-Za-z0-9_-]{40,160}"),
    *(r"gh[pousr]_[A-Za-z0-9]{36,255}", r"github_pat_[A-Za-z0-9_]{22,255}", r"glpat-[A-Za-z0-9_-]{20,64}"),
    *(r"(?:AKIA|ASIA)[A-Z0-9]{16}", r"AIza[A-Za-z0-9_-]{35}", r"ya29\.[A-Za-z0-9_-]{20,200}", r"hf_[A-Za-z0-9]{30,60}"),
    *(
        r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,128}",
        r"whsec_[A-Za-z0-9+/=]{24,128}",
        r"xox[abeoprs]-[A-Za-z0-9-]{10,250}",
    ),
    *(r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,64}", r"npm_[A-Za-z0-9]{36}", r"pypi-[A-Za-z0-9_-]{50,250}"),
)
PROVIDER_KEY = Shape(
    ENTITY, re.compile(rf"(?<![\w-])(?:{'|'.join(PROVIDERS)})(?![\w-])"), alone=SURE_SHAPE, digits=False
)
# RFC 7519: three parts in base64url, of which the first two are JSON objects.
JWT = Shape(
    ENTITY,
    re.compile(r"(?<![\w.-])eyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{5,4000}\.[A-Za-z0-9_-]{0,1000}(?![\w-])"),
    alone=SURE_SHAPE,
    digits=False,
)
# RFC 7468. What was cut off is a key as far as it goes.
PRIVATE_KEY = Shape(
    ENTITY,
    re.compile(
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[A-Za-z0-9+/=\s:,-]{16,8000}?"
        r"(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)"
    ),
    alone=SURE_SHAPE,
    digits=False,
)
IN_URL = Shape(
    ENTITY,
    re.compile(r"(?<=://)[^\s/:@]{1,100}:(?P<value>[^\s/@]{3,200})(?=@)"),
    alone=SURE_SHAPE,
    digits=False,
)
NAMES = (
    "api[ _-]?key|access[ _-]?key|secret[ _-]?key|client[ _-]?secret|secret|token|passwd|password|passphrase|pwd|pin"
    "|credentials?|auth(?:orization)?(?: code)?|otp|cvv|cvc"
)
CALLED = re.compile(
    rf"\b(?:{NAMES})\b(?: (?:is|was))?\s{{0,2}}[:=]?\s{{0,2}}[\"'`]?(?P<value>[^\s\"'`,;]{{3,200}})", re.IGNORECASE
)
NOT_ONE = re.compile(r"(?:[a-z]+|[A-Z][a-z]+|[A-Z]+|[a-z]+-[a-z]+)[.!?)]*\Z")
CLASSES = (str.islower, str.isupper, str.isdigit)
LEAST_BITS = 2.5


class NamedSecretRecognizer:
    """A value that is called a secret, and does not read as a word of a sentence about secrets."""

    entities = frozenset({ENTITY})

    def find(self, text: str) -> Iterator[Finding]:
        for start, end, value in matches(CALLED, text):
            bare = value.rstrip(".!?)]}")
            if bare and not NOT_ONE.match(bare) and looks_random(bare):
                yield Finding(start, start + len(bare) if end > start else end, ENTITY, IN_CONTEXT)


def looks_random(value: str) -> bool:
    """Digits alone of a PIN's length, or characters of several kinds that repeat little (by Shannon's entropy)."""
    if value.isdigit():
        return 3 <= len(value) <= 8
    kinds = sum(any(is_of(one) for one in value) for is_of in CLASSES) + any(not one.isalnum() for one in value)
    return len(value) >= 6 and kinds >= 2 and entropy(value) >= LEAST_BITS


def entropy(value: str) -> float:
    counts = Counter(value)
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts.values())


CUSTOMER_WORDS = Context(
    """
    customer number, customer no, customer id, customer, client number, client id, member id, member number,
    membership number, policy number, policy no, policy, claim number, claim no, insurance number, patient id,
    medical record number, mrn, employee id, employee number, loan number, kundennummer, vertragsnummer
    """
)
CUSTOMER_NUMBER = Shape(
    "CUSTOMER_NUMBER",
    re.compile(
        r"(?<![\w.-])(?=[A-Za-z-]{0,8}\d)[A-Za-z]{0,5}[-/]?\d[A-Za-z0-9]*(?:[-/][A-Za-z0-9]{2,10}){0,4}(?![\w]|[.-]\d)"
    ),
    context=CUSTOMER_WORDS,
    excludes=Context("version, usd, eur, $, €, %, since, in, of, about"),
)
SECRETS = (PROVIDER_KEY, JWT, PRIVATE_KEY, IN_URL, NamedSecretRecognizer(), CUSTOMER_NUMBER)
