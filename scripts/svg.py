"""SVG of a matplotlib figure: small, to be put into a page, with words for each mark."""

import io
import re


class Tips:
    """What a reader sees on pointing at a mark: collected here, put into the SVG by text_of."""

    def __init__(self):
        self.texts = {}

    def add(self, artist, *texts):
        key = f"tips-{len(self.texts)}"
        artist.set_gid(key)
        self.texts[key] = [str(text) for text in texts]


def text_of(shown, name):
    """The SVG as text: ids that no other picture has, marks with what to say of them."""
    buffer = io.StringIO()
    shown.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    used = set(re.findall(r"(?:url\(#|xlink:href=\"#)([^)\"]+)", text))
    tips = shown.tips.texts

    def identity(found):
        key = found[1]
        if key in tips:
            return f' data-tips="{key}"'
        return f' id="{name}-{key}"' if key in used else ""

    text = re.sub(r' id="([^"]*)"', identity, text)
    text = re.sub(r'(url\(#|xlink:href="#)', rf"\g<1>{name}-", text)
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.S)
    return with_tips(text, tips)


def escaped(text):
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(sign, name)
    return text


def with_tips(text, tips):
    """Gives each mark its own words: the n-th `use` of a line, or the one path of a bar."""
    parts = re.split(r'(<g data-tips="[^"]*">)', text)
    for place in range(1, len(parts), 2):
        words = iter(tips[re.search(r'"([^"]*)"', parts[place])[1]])
        body = parts[place + 1]
        element = "use" if "<use" in body[: group_end(body)] else "path|text"
        end = group_end(body)

        def mark(found, words=words):
            word = next(words, None)
            if word is None:
                return found[0]
            return f'<{found[1]} class="mark" data-tip="{escaped(word)}"'

        parts[place] = "<g>"
        parts[place + 1] = re.sub(rf"<({element})\b", mark, body[:end]) + body[end:]
    return "".join(parts)


def group_end(body):
    """Where the group ends whose begin stands just before body."""
    depth = 1
    for found in re.finditer(r"<g\b|</g>", body):
        depth += 1 if found[0] == "<g" else -1
        if depth == 0:
            return found.start()
    return len(body)
