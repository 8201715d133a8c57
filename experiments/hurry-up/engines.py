#!/usr/bin/env python3
"""The agent in every kind of engine: its slots advance with each query, no failure is counted, and
the engine answers as without it.

Usage: engines.py [NAME...]     all of them, or those whose name has one of these words in it. Exit
                                code 1 if one fails, 3 if all were skipped.

Engines come from Maven Central and stay in target/elasticsearch and target/solr. Solr is 4.10.4,
the CPU-sleeps paper's generation and the last whose web application is published there: later ones
are distributed at solr.apache.org only, their Maven artifacts are libraries.
"""

import glob
import hashlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import slots
from engine import INDEX, Engine

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "experiments/hurry-up"
JAR = ROOT / "target/java/roost-agent.jar"
CENTRAL = "https://repo.maven.apache.org/maven2/"
PARAGRAPHS = 2000
WORDS = ["the", "system", "file", "page", "a", "memory", "word", "kernel", "process", "time"]
QUERIES = 40


class Skip(Exception):
    """Why an engine cannot be tried here."""


class Failed(Exception):
    """An engine or its agent did not do its part."""


def jdk(version):
    """The home of a JDK of this version."""
    for path in sorted(glob.glob("/usr/lib/jvm/*")):
        release = pathlib.Path(path, "release")
        if (
            release.is_file()
            and f'JAVA_VERSION="{version}' in release.read_text()
            and os.access(path + "/bin/java", os.X_OK)
        ):
            return path
    raise Skip(f"no JDK {version} below /usr/lib/jvm")


def check(path, before, asked):
    """Every query was seen, and nothing failed."""
    methods, failures, _ = slots.read(path)
    seen = calls(path) - before
    if [state for _, state in methods] != ["watched"] * len(methods):
        raise Failed(f"not watched: {methods}")
    if any(failures.values()):
        raise Failed(f"failures: {failures}")
    if seen != asked:
        raise Failed(f"{asked} queries were answered and the slots saw {seen}")
    return f"{seen} of {asked} calls seen, no failure"


def calls(path):
    """Of all threads; those that ended since are lost."""
    return sum(slot[1] // 2 for slot in slots.read(path)[2])


def ask_all(ask):
    for number in range(QUERIES):
        ask(f"{WORDS[number % len(WORDS)]} {WORDS[number * 7 % len(WORDS)]}")


def elastic(version, java, attach=False, refused=None):
    """Elasticsearch or OpenSearch by the script beside this one; `refused`: the engine lets no
    agent in later, and says this."""
    environment = dict(os.environ, JAVA_HOME=jdk(java), AGENT="off" if attach else "on")
    script = [HERE / "elasticsearch"]
    try:
        if (
            subprocess.run(script + ["start", version], env=environment, stdout=subprocess.DEVNULL).returncode
            != 0
        ):
            raise Failed("it did not come up")
        home = ROOT / "target/elasticsearch" / version
        engine = Engine(int((home / "port").read_text()))
        engine.index(PARAGRAPHS)
        path = f"/dev/shm/roost-es-{version}/slots"
        if attach:
            attach_to(int((home / "pid").read_text()), METHODS[version], path, environment["JAVA_HOME"])
        before = calls(path) if not refused else None

        def ask(words):
            found = json.loads(
                engine.ask(
                    "POST",
                    f"/{INDEX}/_search?request_cache=false",
                    json.dumps({"query": {"match": {"text": words}}}),
                )
            )
            if found["timed_out"] or found["_shards"]["failed"] or not found["hits"]["hits"]:
                raise Failed(f"`{words}` was answered {found}")

        ask_all(ask)
        said = "; ".join(
            line
            for line in (home / "out.txt").read_text(errors="replace").splitlines()
            if "roost-agent: " in line
        )
        if refused:
            if refused not in said:
                raise Failed(f"the agent should be refused with {refused}, and it said: {said}")
            return f"refused by {refused}, and {QUERIES} queries were answered as ever"
        try:
            return check(path, before, QUERIES)
        except Failed as why:
            raise Failed(f"{why}; it said: {said}")
    finally:
        subprocess.run(script + ["stop", version], env=environment, check=True)


# The watched method when the agent comes later; the same as in the script.
METHODS = {
    "6.5.4": (
        "org.elasticsearch.search.SearchService::executeQueryPhase(Lorg/elasticsearch/search/internal/ShardSearchRequest;Lorg/elasticsearch/action/search/SearchTask;)"
    ),
    "8.19.21": (
        "org.elasticsearch.search.SearchService::executeQueryPhase(Lorg/elasticsearch/search/internal/ShardSearchRequest;Lorg/elasticsearch/tasks/CancellableTask;)"
    ),
}


def attach_to(pid, method, path, home):
    """Loads the agent into a JVM that runs, as its user."""
    folder = pathlib.Path(path).parent
    shutil.copy(JAR, folder)
    user = os.stat(f"/proc/{pid}").st_uid
    as_user = (
        []
        if user == os.getuid()
        else ["setpriv", f"--reuid={user}", f"--regid={os.stat(f'/proc/{pid}').st_gid}", "--clear-groups"]
    )
    if as_user:
        os.chown(folder, user, -1)
    command = as_user + [
        f"{home}/bin/java",
        "-jar",
        str(folder / JAR.name),
        str(pid),
        f"method={method},file={path}",
    ]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if said.returncode != 0:
        raise Failed(f"attaching: {said.stdout}{said.stderr}")


def tiny(java, attach=False):
    """A plain Java server: the one of the agent's own tests."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = f"{folder}/slots"
        method = "tiny.Server::search(I)J"
        home = jdk(java)
        command = [f"{home}/bin/java", "-Xmx128m", "-cp", str(ROOT / "target/java/test-classes")]
        if not attach:
            command.insert(1, f"-javaagent:{JAR}=method={method},file={path}")
        with subprocess.Popen(
            command + ["tiny.Server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as server:
            try:
                pid = int(server.stdout.readline().split()[1])
                if attach:
                    attach_to(pid, method, path, home)

                def tell(words):
                    print(words, file=server.stdin, flush=True)
                    if server.stdout.readline() != "ok\n":
                        raise Failed(f"`{words}` was not obeyed")

                tell("calls 1 1")
                before = calls(path)
                tell("calls 4 1000")
                return check(path, before, 4000)
            finally:
                server.kill()


def solr():
    """Solr 4.10.4 in Jetty."""
    home = jdk("17")
    place = ROOT / "target/solr"
    jars = {name: fetch(place, path) for name, path in SOLR.items()}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        core = pathlib.Path(folder, "home/pages/conf")
        core.mkdir(parents=True)
        (core.parent / "core.properties").write_text("name=pages\n")
        (core / "solrconfig.xml").write_text(SOLRCONFIG)
        (core / "schema.xml").write_text(SCHEMA)
        (pathlib.Path(folder) / "home/solr.xml").write_text("<solr/>")
        port, path = free_port(), f"{folder}/slots"
        method = "org.apache.solr.handler.component.SearchHandler::handleRequestBody"
        logging = ":".join(
            str(jars[name]) for name in ("jetty", "slf4j-api", "slf4j-jdk14", "jcl-over-slf4j")
        )
        # Its index is mapped by unsafe means that newer JDKs ask to be named.
        command = [
            f"{home}/bin/java",
            "-Xmx512m",
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        ]
        command += [
            f"-javaagent:{JAR}=method={method},file={path}",
            f"-Dsolr.solr.home={folder}/home",
            f"-Djava.io.tmpdir={folder}",
        ]
        command += [
            "-cp",
            logging,
            "org.eclipse.jetty.runner.Runner",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--path",
            "/solr",
            str(jars["war"]),
        ]
        with open(f"{folder}/out", "w") as out, subprocess.Popen(command, stdout=out, stderr=out) as server:
            try:
                wait_for(port, "/solr/pages/select?q=*:*&wt=json", server, f"{folder}/out")
                documents = [
                    {"id": str(number), "text": " ".join(WORDS[number % 7 :])} for number in range(200)
                ]
                post(port, "/solr/pages/update?commit=true", json.dumps(documents))
                before = calls(path)

                def ask(words):
                    found = json.loads(
                        get(port, "/solr/pages/select?wt=json&q=" + urllib.parse.quote(f"text:({words})"))
                    )
                    if found["responseHeader"]["status"] or not found["response"]["numFound"]:
                        raise Failed(f"`{words}` was answered {found}")

                ask_all(ask)
                return check(path, before, QUERIES)
            finally:
                server.kill()


SOLR = {
    "war": "org/apache/solr/solr/4.10.4/solr-4.10.4.war",
    "jetty": "org/eclipse/jetty/jetty-runner/9.4.58.v20250814/jetty-runner-9.4.58.v20250814.jar",
    "slf4j-api": "org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar",
    "slf4j-jdk14": "org/slf4j/slf4j-jdk14/1.7.36/slf4j-jdk14-1.7.36.jar",
    "jcl-over-slf4j": "org/slf4j/jcl-over-slf4j/1.7.36/jcl-over-slf4j-1.7.36.jar",
}
SOLRCONFIG = """<config><luceneMatchVersion>4.10.4</luceneMatchVersion>
<directoryFactory name="DirectoryFactory" class="solr.NIOFSDirectoryFactory"/>
<requestHandler name="/select" class="solr.SearchHandler"/><requestHandler name="/update" class="solr.UpdateRequestHandler"/></config>"""
SCHEMA = """<schema name="pages" version="1.5"><types>
<fieldType name="string" class="solr.StrField"/><fieldType name="text" class="solr.TextField"><analyzer>
<tokenizer class="solr.StandardTokenizerFactory"/><filter class="solr.LowerCaseFilterFactory"/></analyzer></fieldType></types><fields>
<field name="id" type="string" required="true"/><field name="text" type="text"/></fields><uniqueKey>id</uniqueKey></schema>"""


def fetch(place, path):
    """A file of Maven Central, checked against the sum that lies beside it."""
    place.mkdir(parents=True, exist_ok=True)
    file = place / pathlib.Path(path).name
    if not file.exists():
        part = file.with_suffix(".part")
        urllib.request.urlretrieve(CENTRAL + path, part)
        wanted = urllib.request.urlopen(CENTRAL + path + ".sha1").read().decode().split()[0]
        if hashlib.sha1(part.read_bytes()).hexdigest() != wanted:
            raise Failed(f"{path} is damaged")
        part.rename(file)
    return file


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(port, path):
    return urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30).read()


def post(port, path, body):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", body.encode(), {"Content-Type": "application/json"}
    )
    return urllib.request.urlopen(request, timeout=30).read()


def wait_for(port, path, server, out):
    """Until it answers well, for two minutes."""
    for _ in range(240):
        try:
            return get(port, path)
        except (OSError, http.client.HTTPException) as cause:
            if server.poll() is not None:
                break
            last = cause
        time.sleep(0.5)
    raise Failed(f"it does not answer: {last}; {pathlib.Path(out).read_text()[-2000:]}")


ENGINES = {
    "Elasticsearch 6.5.4 (security manager), JDK 17": lambda: elastic("6.5.4", "17"),
    "Elasticsearch 8.19.21 (entitlements), JDK 17": lambda: elastic("8.19.21", "17"),
    "Elasticsearch 8.19.21 (entitlements), JDK 25": lambda: elastic("8.19.21", "25"),
    "OpenSearch 3.6.0, JDK 25": lambda: elastic("3.6.0", "25"),
    "Solr 4.10.4, JDK 17": solr,
    "a plain Java server, JDK 17": lambda: tiny("17"),
    "a plain Java server, JDK 25": lambda: tiny("25"),
    "attached to a plain Java server, JDK 17": lambda: tiny("17", attach=True),
    "attached to Elasticsearch 6.5.4, JDK 17": lambda: elastic("6.5.4", "17", attach=True),
    # Its entitlements are in force by then, and the agent may read no file. Started with the agent,
    # they come after it.
    "attached to Elasticsearch 8.19.21, JDK 17": lambda: elastic(
        "8.19.21", "17", attach=True, refused="NotEntitledException"
    ),
}


def main():
    wanted = [
        name
        for name in ENGINES
        if not sys.argv[1:] or any(word.lower() in name.lower() for word in sys.argv[1:])
    ]
    if not wanted:
        raise SystemExit(
            f"no engine has one of these words in its name: {', '.join(sys.argv[1:])}; there are"
            f" {'; '.join(ENGINES)}"
        )
    # A signal ends it as an exception does: the started processes are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    outcomes = []
    for name in wanted:
        began = time.monotonic()
        try:
            outcome, text = "ok", ENGINES[name]()
        except Skip as why:
            outcome, text = "SKIPPED", str(why)
        except (Failed, SystemExit, OSError) as why:
            outcome, text = "FAILED", str(why)
        outcomes.append(outcome)
        print(f"{outcome:8} {name}: {text} ({time.monotonic() - began:.0f} s)", flush=True)
    if "FAILED" in outcomes:
        raise SystemExit(1)
    if set(outcomes) == {"SKIPPED"}:
        raise SystemExit(3)


if __name__ == "__main__":
    main()
