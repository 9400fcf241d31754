"""The language of a prompt is told from its beginning, always the same, or not told at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.routing.language import LANGUAGES, SAMPLE_CHARS, STOP_WORDS, language_of

ENGLISH = "What is the status of my order, and how can I change it?"


EXAMPLES = [
    ("en", ENGLISH),
    ("de", "Wie kann ich mein Konto schließen und was ist mit der Karte?"),
    ("fr", "Comment est-ce que je ferme mon compte dans les délais ?"),
    ("es", "¿Cómo cierro mi cuenta y qué pasa con las tarjetas del banco?"),
    ("it", "Come posso chiudere il mio conto e che cosa è successo?"),
    ("pt", "Como eu fecho minha conta? O cartão não está com o banco."),
    ("nl", "Hoe kan ik mijn rekening sluiten en wat is het saldo?"),
    ("sv", "Hur kan jag stänga min räkning och vad är det som gäller?"),
    ("pl", "Jak zamknąć moje konto i czy to jest możliwe? Nie wiem, co się stało."),
    ("ru", "Как мне закрыть счёт и что это значит для меня?"),
    ("uk", "Як мені закрити рахунок і що це означає?"),
    ("bg", "Как да си закрия сметката и това какво е?"),
    ("ja", "口座を閉じる方法を教えてください"),
    ("zh", "我怎样才能关闭我的账户"),
    ("ko", "계좌를 어떻게 해지하나요"),
    ("ar", "كيف أغلق حسابي المصرفي"),
    ("fa", "چگونه حساب خود را ببندم"),
    ("ur", "میں اپنا اکاؤنٹ کیسے بند کروں"),
    ("el", "Πώς κλείνω τον λογαριασμό μου;"),
    ("he", "איך אני סוגר את החשבון שלי"),
    ("th", "ฉันจะปิดบัญชีได้อย่างไร"),
]


@pytest.mark.parametrize(("language", "text"), EXAMPLES)
def test_it_tells_a_question_s_language(language: str, text: str) -> None:
    assert language_of(text) == language
    assert language_of(text.upper()) == language


@pytest.mark.parametrize("text", ["", " \n", "4711 + 12", "OK", "Berlin", "🙂🙂", "xyzzy plugh"])
def test_what_says_too_little_is_unknown(text: str) -> None:
    assert language_of(text) == ""


@given(st.text(max_size=2 * SAMPLE_CHARS), st.text())
def test_any_text_has_one_answer_and_only_its_beginning_counts(text: str, more: str) -> None:
    known = {*STOP_WORDS, "ja", "zh", "ko", "ar", "fa", "ur", "el", "he", "th", ""}
    assert language_of(text) in known
    full = text.ljust(SAMPLE_CHARS)
    assert language_of(full) == language_of(full + more)


def test_every_language_that_it_tells_may_stand_in_a_rule() -> None:
    assert {language for language, _ in EXAMPLES} == LANGUAGES
