"""The language that a text is written in, guessed from its script and its most frequent words."""

from __future__ import annotations

import re
from collections import Counter

# A guess costs the same for a greeting and for a book.
SAMPLE_CHARS = 500
# One word may be a name or a loan; two of one language and fewer of every other say something.
MIN_WORDS = 2

LETTER = re.compile(r"[^\W\d_]")
WORD = re.compile(r"[^\W\d_]+")
LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
CYRILLIC = re.compile(r"[\u0400-\u04ff]")
ARABIC = re.compile(r"[\u0620-\u064a\u066e-\u06d3]")
KANA = re.compile(r"[\u3041-\u3096\u30a1-\u30fa]")
CHINESE_OR_JAPANESE = re.compile(r"[\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff]")
# Scripts that one language mostly has for itself.
SCRIPTS = {
    "el": re.compile(r"[\u0370-\u03ff]"),
    "he": re.compile(r"[\u05d0-\u05ea]"),
    "th": re.compile(r"[\u0e01-\u0e4e]"),
    "ko": re.compile(r"[\u1100-\u11ff\uac00-\ud7a3]"),
}

STOP_WORDS = {
    "en": "the and is are of to in that it for you what how this with my i on was have not can do please",
    "de": "der die das und ist ich nicht ein eine zu mit wie was den von für auf sie wir mein bitte kann es im",
    "fr": "le la les et est je ne pas un une de des du que pour vous nous avec mon ma dans sur comment qui",
    "es": "el la los las y es yo no un una de del que para por con mi en cómo qué se está lo su",
    "it": "il lo la gli e è io non un una di del che per con mio mia in come si sono della nel",
    "pt": "o a os as e é eu não um uma de do da que para por com meu minha em como se está no na",
    "nl": "de het een en is ik niet van dat voor met mijn op hoe wat zijn je te aan kan deze",
    "sv": "och är jag inte en ett att det som för med min på hur vad av den till kan i",
    "pl": "i w nie na jest że to się z do jak co mój moja dla czy o po od proszę",
    "ru": "и в не на что как это я с по мой моя для он она из у так мне вы",
    "uk": "і в не на що як це я з по мій моя для він вона із у так мені ви та",
    "bg": "и в не на че как това аз с по мой моя за той тя от да се е ми",
}
# What `language_of` can say, besides "" for what it cannot tell.
LANGUAGES = frozenset({*STOP_WORDS, *SCRIPTS, "zh", "ja", "ar", "fa", "ur"})
LANGUAGES_OF: dict[str, list[str]] = {}
for _language, _words in STOP_WORDS.items():
    for _word in _words.split():
        LANGUAGES_OF.setdefault(_word, []).append(_language)


def language_of(text: str) -> str:
    """ISO 639-1, or "" where it cannot be told. Looks at the first `SAMPLE_CHARS` characters only."""
    sample = text[:SAMPLE_CHARS]
    if sample.isascii():  # most prompts; their letters need no counting
        return _by_words(sample.lower())
    letters = len(LETTER.findall(sample))
    if not letters:
        return ""

    def fills(script: re.Pattern[str]) -> bool:
        return len(script.findall(sample)) * 2 > letters

    if fills(LATIN) or fills(CYRILLIC):
        return _by_words(sample.lower())
    if fills(CHINESE_OR_JAPANESE):
        return "ja" if KANA.search(sample) else "zh"
    if fills(ARABIC):
        return _by_arabic_letters(sample)
    return next((language for language, script in SCRIPTS.items() if fills(script)), "")


def _by_words(sample: str) -> str:
    found = Counter(language for word in WORD.findall(sample) for language in LANGUAGES_OF.get(word, ()))
    (first, most), (_, next_most) = [*found.most_common(2), ("", 0), ("", 0)][:2]
    return first if most >= MIN_WORDS and most > next_most else ""


def _by_arabic_letters(sample: str) -> str:
    """Urdu and Persian write letters that Arabic does not have."""
    if re.search("[ٹڈڑںے]", sample):
        return "ur"
    return "fa" if re.search("[پچژگکی]", sample) else "ar"
