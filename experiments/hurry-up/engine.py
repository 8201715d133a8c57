"""A search engine that speaks Elasticsearch's language, filled with the corpus, and the words that
are asked of it."""

import collections
import http.client
import json
import re
import sys
import time

import corpus

INDEX = "paragraphs"
# The body that `roost load` sends: every keyword may be in the text, the ten best paragraphs are
# the answer.
BODY = '{"size":10,"query":{"match":{"text":"{words}"}}}'


class Engine:
    """One kept-alive connection to 127.0.0.1."""

    def __init__(self, port):
        self.port = port
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, method, path, body=None, kind="application/json"):
        """The answer's body; an answer that is an error ends the program."""
        self.connection.request(method, path, body, {"Content-Type": kind})
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 400 and method != "DELETE":
            raise SystemExit(f"{method} {path}: {answer.status} {text[:300]!r}")
        return text

    @property
    def search_url(self):
        """Without its cache: the same query is searched each time."""
        return f"http://127.0.0.1:{self.port}/{INDEX}/_search?request_cache=false"

    def index(self, most):
        """Fills it with up to so many paragraphs. (paragraphs, words by the number of paragraphs
        that have them)"""
        corpus.fetch()
        self.ask("DELETE", "/" + INDEX)
        settings = {"settings": {"number_of_shards": 1, "number_of_replicas": 0, "refresh_interval": "-1"}}
        self.ask("PUT", "/" + INDEX, json.dumps(settings))
        # Types are gone since version 8, and OpenSearch, which counts anew, never had them.
        (node,) = json.loads(self.ask("GET", "/_nodes/_local"))["nodes"].values()
        has_types = int(node["version"].split(".")[0]) == 6
        bulk = f"/{INDEX}/_doc/_bulk" if has_types else f"/{INDEX}/_bulk"
        words, lines, count, began = collections.Counter(), [], 0, time.monotonic()
        for paragraph in corpus.paragraphs(most):
            lines += ['{"index":{}}', json.dumps({"text": paragraph})]
            count += 1
            words.update(distinct(paragraph))
            if len(lines) >= 4000:
                self.ask("POST", bulk, "\n".join(lines) + "\n", "application/x-ndjson")
                lines = []
                if count % 20_000 == 0:
                    rate = count / (time.monotonic() - began)
                    print(f"indexing: {count} paragraphs, {rate:.0f} a second", file=sys.stderr, flush=True)
        if lines:
            self.ask("POST", bulk, "\n".join(lines) + "\n", "application/x-ndjson")
        self.ask("POST", f"/{INDEX}/_forcemerge?max_num_segments=1")
        self.ask("POST", f"/{INDEX}/_refresh")
        return count, common(words)

    def index_once(self, most):
        """The words of the corpus, the most common first; fills the index only if it does not have
        so many paragraphs yet."""
        try:
            has = json.loads(self.ask("GET", f"/{INDEX}/_count"))["count"]
        except SystemExit:
            has = 0
        if has != most:
            return [word for word, _ in self.index(most)[1]]
        words = collections.Counter()
        for paragraph in corpus.paragraphs(most):
            words.update(distinct(paragraph))
        return [word for word, _ in common(words)]


def distinct(paragraph):
    """A paragraph's words."""
    return set(re.findall(r"[a-z]{3,12}", paragraph.lower()))


def common(words):
    """The most common words; alike in frequency they come in the order of the alphabet, so that the
    list is always the same."""
    return sorted(words.items(), key=lambda word: (-word[1], word[0]))[:WORDS]


# The rest are seldom asked for, and mostly typing mistakes.
WORDS = 5000
