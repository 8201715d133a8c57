#!/usr/bin/env python3
"""The text that is searched: paragraphs of Debian's packages of manuals and dictionaries.

Usage: corpus.py     fetches missing packages and lists those that are there

corpus.txt pins each package by version and SHA-256, so the same paragraphs come out everywhere and
in the same order. They are fetched from the machine's own mirror (`apt-get download`) or, where its
Debian is another, from the archive's pool; never installed. They stay in target/hurry-up/corpus."""

import gzip
import hashlib
import pathlib
import re
import subprocess
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parents[1] / "target/hurry-up/corpus"
POOL = "http://deb.debian.org/debian/pool/main/"


def packages():
    """(name, version, SHA-256, path in the pool) of each."""
    lines = (HERE / "corpus.txt").read_text().splitlines()
    return [line.split() for line in lines if not line.startswith("#")]


def fetch():
    """Unpacks every package into FOLDER; does nothing for those that are there."""
    for name, version, wanted, pool in packages():
        place = FOLDER / name
        if (place / ".whole").exists():
            continue
        FOLDER.mkdir(parents=True, exist_ok=True)
        deb = FOLDER / pathlib.Path(pool).name
        if not deb.exists() or digest(deb) != wanted:
            asked = subprocess.run(
                ["apt-get", "download", "-qq", f"{name}={version}"], cwd=FOLDER, capture_output=True
            )
            # apt writes the colon of a version as %3a.
            for got in FOLDER.glob(f"{name}_*.deb"):
                if got != deb and asked.returncode == 0:
                    got.rename(deb)
        if not deb.exists() or digest(deb) != wanted:
            urllib.request.urlretrieve(POOL + pool, deb)
        if digest(deb) != wanted:
            raise SystemExit(
                f"{deb} is not the {name} {version} that corpus.txt pins (SHA-256 {wanted}); remove it and"
                " try again"
            )
        subprocess.run(["dpkg-deb", "-x", deb, place], check=True)
        (place / ".whole").touch()
        deb.unlink()
        print(f"corpus: {name} {version}", flush=True)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def paragraphs(most):
    """Up to so many paragraphs, always the same."""
    count = 0
    for name, *_ in packages():
        for path in sorted((FOLDER / name).rglob("*")):
            if not path.is_file() or path.is_symlink() or path.suffix in NO_TEXT:
                continue
            # dictd's .dz is gzip with an index in its header.
            with (gzip.open if path.suffix in (".gz", ".dz") else open)(path, "rb") as file:
                text = file.read().decode("utf-8", "ignore")
            for paragraph in re.split(r"\n\s*\n", plain(text, path)):
                paragraph = " ".join(paragraph.split())
                if len(paragraph) > 80:
                    yield paragraph[:4000]
                    count += 1
                    if count == most:
                        return


def plain(text, path):
    """Without the marks of HTML and of manual pages."""
    if path.suffix in (".html", ".xhtml"):
        return re.sub(r"<[^>]*>", " ", re.sub(r"</(p|li|dd|dt|pre|h\d|td)>", "\n\n", text))
    if "/man/" in str(path):
        text = re.sub(r"(?m)^\.(PP|P|LP|TP|IP|SH|SS)\b.*$", "\n", text)
        return re.sub(r"\\f.|\\[&e]|(?m:^[.'].*$)", "", text)
    return text


NO_TEXT = {".pdf", ".epub", ".png", ".jpg", ".svg", ".css", ".js", ".index", ".whole", ".info"}

if __name__ == "__main__":
    fetch()
    sizes = [len(paragraph) for paragraph in paragraphs(10**9)]
    print(f"{len(sizes)} paragraphs, {sum(sizes) / 1e6:.0f} MB, in {FOLDER}")
