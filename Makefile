# The two that matter: `make demo` shows Roost on this machine, `make test` shows that it works.

.PHONY: demo test test-fast test-full test-engines fuzz fuzz-against check build kit hurry-up
.PHONY: java java-bench lab bench
.PHONY: papers papers-quick deb release image package-check wheel notebooks ray dashboards docs
.PHONY: lab-kubernetes lab-kubelet portable portable-types clean-runs

# Where cargo builds them; shared folders are usual.
RELEASE = $${CARGO_TARGET_DIR:-target}/release

demo: ## the main job on this machine's own CPUs, about a minute; ends with runs/<name>/report.html
	@scripts/setup build
	@[ -x $(RELEASE)/roost ] || \
		echo 'demo: building roost first, which takes some minutes; the demo itself takes one and a half'
	cargo build --release --locked -p roost
	@# A goal that was missed (5) or a busy machine (6) is told in the table and on the page; it is no
	@# failure of make.
	$(RELEASE)/roost demo $(DEMO) || case $$? in 5|6) ;; *) exit 1 ;; esac

# Property tests draw the same cases everywhere. Others: make test PROPTEST_RNG_SEED=$$RANDOM
test test-fast: export PROPTEST_RNG_SEED ?= 20261120

test-fast: ## unit and property tests: no root, no emulator, nothing to install but the toolchain
	@scripts/setup build
	cargo test --locked --workspace --lib --bins

test: ## all tests of this machine: unit, property, conformance and integration tests, the soak included
	@scripts/setup test
	@scripts/dashboards --rules
	@scripts/docs --links
	mvn -q -B -f java/pom.xml verify
	cargo build --locked --workspace --all-targets
	@scripts/python test
	cargo test --locked --workspace -- --nocapture --test-threads 2

# An emulator runs eight CPUs in one thread, engines come from Maven Central, a random search needs
# time: none fits into the time of `make test`.
test-full: test lab lab-kubernetes lab-kubelet package-check test-engines ## and kernels, clusters, packages, engines
test-full: fuzz notebooks ray dashboards portable

fuzz: ## libFuzzer at each door through which bytes of strangers come, 20 s each
	@# A random search: its finds are told, and are no verdict on the change at hand. Kept inputs
	@# are, in the tests.
	@scripts/fuzz || echo "fuzz: inputs that bring a target down were FOUND, see above:" \
		"keep them in fuzz/corpus and mend the fault"

lab-kubernetes: ## pods governed under a real API server, about five minutes; built first from Go, ten
	@scripts/setup test
	cargo build --locked -p roost -p kube
	@lab/kubernetes build && lab/kubernetes || [ $$? = 3 ]

lab-kubelet: image ## the chart and its image under a real kubelet, about ten minutes; built first from Go, fifteen
	@scripts/setup cluster
	@lab/kubelet build && ROOST=target/release/roost lab/kubelet || [ $$? = 3 ]

docs: ## the documentation as a site, each of its links checked: target/docs/book/index.html
	@scripts/setup build
	@scripts/docs

portable: ## roost sim, load, report linted for Windows and macOS, run under Wine; five minutes
	@scripts/setup portable
	@scripts/portable || [ $$? = 3 ]

portable-types:
	@scripts/setup portable-types
	@scripts/portable --types || [ $$? = 3 ]

dashboards: ## each panel of config/grafana and each alert against a real Prometheus, two minutes, as root
	@scripts/setup test
	$(if $(ROOST),,cargo build --locked -p roost)
	ROOST="$(or $(ROOST),$${CARGO_TARGET_DIR:-target}/debug/roost)" scripts/dashboards $(DASHBOARDS)

test-engines: ## the agent in Elasticsearch, OpenSearch, Solr, plain Java servers; about ten minutes
	@scripts/setup engines
	mvn -q -B -f java/pom.xml package -DskipTests
	experiments/hurry-up/engines.py $(ENGINES)

# ROOST=target/debug/roost: its commands and flags are counted as well.
check: ## what CI asks besides the tests: format, house rules, lints, docs, licences, advisories
	cargo fmt --all --check
	@scripts/house --check $(if $(ROOST),--roost "$(ROOST)")
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet
	@scripts/audit
	@if command -v actionlint >/dev/null; then actionlint; \
	elif command -v go >/dev/null; then go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.7; \
	else echo 'check: the workflows SKIPPED: neither actionlint nor go here'; fi
	@# 3.9 by systemd 252; docs/security.md has the reason of each point that is left.
	@if ! command -v systemd-analyze >/dev/null; then \
		echo 'check: the exposure of the systemd units SKIPPED: no systemd-analyze here'; \
	elif ! systemd-analyze security --offline=true --threshold=40 config/systemd/*.service >/dev/null; then \
		systemd-analyze security --offline=true --no-pager config/systemd/*.service; exit 1; fi

hurry-up: ## the Hurry-up paper's experiment on a real Elasticsearch 6.5.4, about 15 minutes; ends with runs/hurry-up-.../report.html
	@scripts/setup engines
	cargo build --release --locked --quiet -p roost
	mvn -q -B -f java/pom.xml package -DskipTests
	experiments/hurry-up/experiment.py $(HURRY_UP)

build:
	@scripts/setup build
	cargo build --release --locked -p roost

# Static with glibc: libbpf needs libelf and zlib, of which no Debian package is made for musl.
HERE = $(shell rustc -vV | sed -n 's/^host: //p')

# 450 commands a script, of a text client, of one that is right, and of one that is not.
PEER = memcached
COMMANDS = 10000000
fuzz-against: ## random commands to the store and to PEER=/path/to/memcached-1.6.45, compared; three minutes
	@command -v "$(PEER)" >/dev/null || { echo 'fuzz-against: no $(PEER) here: say PEER=FILE'; exit 3; }
	ROOST_MEMCACHED="$(PEER)" ROOST_DIFFERENTIAL_SCRIPTS=$$(($(COMMANDS) / 450 + 1)) \
		cargo test --locked -p store --test protocol differential -- --nocapture

kit: ## one static file for a server that has nothing else, for `roost prove --kit`: target/kit/roost
	@scripts/setup build
	LIBBPF_SYS_LIBRARY_PATH=$(shell dirname $$(cc -print-file-name=libelf.a)) \
		RUSTFLAGS="-C target-feature=+crt-static" \
		cargo build --release --locked -p roost --features static --target $(HERE)
	install -D target/$(HERE)/release/roost target/kit/roost
	@! readelf -d target/kit/roost | grep NEEDED

bench: build ## side by side with a memcached of at least 1.6.35: make bench PEER=path/to/memcached
	cargo build --release --locked -p roost-bench
	$(RELEASE)/roost-bench serve --peer "$(PEER)"

cross-check: ## the simulator against closed forms and against SimPy, some minutes; writes docs/statistics.md
	@scripts/setup build
	cargo build --release --locked -p roost-bench
	$(RELEASE)/roost-bench sim-cross-check --page docs/statistics.md

# At most two hours of two cores. Runs are kept, so more can be added afterwards: Peafowl 4 and 7 take
# two core-hours (`VARIED=all`).
VARIED := carb,tradeoffs,peafowl/6,peafowl/9,peafowl/10,cpu-sleeps,hurry-up

papers: ## every figure of the papers simulated, claims judged, ESTIMATEs varied: docs/papers.md and runs/papers/report.html
	cargo build --release --locked -p papers
	$(RELEASE)/roost-papers all --vary $(VARIED) --corrections --out runs/papers --markdown docs/papers.md

papers-quick: ## the same pages in about ten minutes, with wider intervals; goes on after a kill: runs/papers-quick/report.html
	cargo build --release --locked -p papers
	$(RELEASE)/roost-papers all --short --out runs/papers-quick --markdown runs/papers-quick/papers.md

deb: build ## a Debian package of this machine's architecture: target/deb/roost_VERSION_ARCH.deb
	cargo build --release --locked -p kube
	scripts/package deb target/release/roost target/deb

release: ## packages, programs, chart, wheel, contents and checksums, as from any other folder: target/release-files
	@scripts/setup release
	scripts/release

image: deb ## the image of charts/roost, an OCI archive: target/image/roost-image.tar
	@scripts/setup release
	scripts/image target/deb/roost_*.deb target/image

package-check: ## .deb and .rpm installed, upgraded and removed; two releases compared; an hour
	@scripts/setup release
	lab/packages
	scripts/release --check

notebooks: ## python/notebooks, one for each paper, with few requests; the reference of the package
	@scripts/setup test
	scripts/python notebooks
	scripts/python docs

ray: ## sweeps on a Ray cluster of two nodes on this machine, one of which is killed
	@scripts/setup test
	scripts/python ray

wheel: ## the Python package `roost-sim` for Python 3.10 and later: target/wheels/*.whl
	@scripts/setup build
	scripts/python wheel

java: ## the agent for JVM servers, tested on every JDK here: target/java/roost-agent.jar
	@scripts/setup test
	mvn -q -B -f java/pom.xml verify

java-bench: ## what a call costs under the agent, by JMH; about two minutes
	@scripts/setup test
	java/bench/run

lab: ## idle states, frequencies and programs in the kernel on stock Debian kernels, then systemd, in an emulator
	@# 3: no emulator or kernel can be had here; it has said why.
	lab/run || { code=$$?; if [ $$code = 3 ]; then echo "lab: SKIPPED"; else exit $$code; fi; }
	lab/topologies || { code=$$?; if [ $$code = 3 ]; then echo "lab: topologies SKIPPED"; else exit $$code; fi; }
	lab/systemd || { code=$$?; if [ $$code = 3 ]; then echo "lab: systemd SKIPPED"; else exit $$code; fi; }
