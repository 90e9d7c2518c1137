# All commands for developers; `make` without a target lists them. Each target sets up what it needs.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEED ?=
SEEDS ?=
NODES ?=
PURE ?=
FIRST ?=
MINUTES ?=
TIMES ?=
BURN ?=
INPUT ?=
SECURE ?=
FRAMES ?=
FAULTS ?=
S ?=
REWRITE ?=
# They need Maven or Go, and a registry once: not part of `make test`.
JAVA_TESTS := tests/conformance/test_kafka_reference.py tests/conformance/test_java_clients.py tests/conformance/test_kafka_tools.py tests/conformance/test_secure_tools.py tests/conformance/test_logins.py tests/conformance/test_java_share_groups.py tests/conformance/test_go_share_groups.py tests/conformance/test_kafka_streams.py tests/conformance/spark tests/conformance/flink tests/conformance/hadoop
# Compiled modules are kept: every test and every service would otherwise compile the same code again.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help setup requirements proto fmt reference lint types unit test up down status demo pictures alerts sbom audit sparkzip sparkclasses compiled compiled-test images k8s-up k8s-test k8s-down bench bench-kafka sim scenario fuzz chaos soak conformance ci clean

help: ## print this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1|/' | awk -F'|' '{printf "  make %-13s %s\n", $$1, $$2}'

$(VENV)/.installed: requirements/dev.txt tools/venv_paths.py lib/pyproject.toml services/broker/pyproject.toml services/controller/pyproject.toml services/txn-coordinator/pyproject.toml services/share-coordinator/pyproject.toml spark-jobs/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --config-setting editable_mode=compat -e lib -e services/broker -e services/controller -e services/txn-coordinator -e services/share-coordinator -e spark-jobs
	$(BIN)/python tools/venv_paths.py
	touch $@

gen/.made: $(VENV)/.installed $(wildcard proto/tidemark_wire/v1/*.proto) tools/write_kafka_schemas.py lib/tidemark/kafka/apis.py
	mkdir -p gen/tidemark_wire/v1
	$(BIN)/python -m grpc_tools.protoc -I proto --python_out=gen --pyi_out=gen --grpc_python_out=gen proto/tidemark_wire/v1/*.proto
	touch gen/tidemark_wire/__init__.py gen/tidemark_wire/v1/__init__.py
	$(BIN)/python tools/write_kafka_schemas.py
	touch gen/.made

setup: $(VENV)/.installed gen/.made ## virtual environment, dependencies, generated code

proto: ## generate the gRPC code and the tables of Kafka's messages again
	rm -f gen/.made && $(MAKE) --no-print-directory gen/.made

requirements: $(VENV)/.installed ## lock requirements/*.in again, with hashes
	for name in uv runtime dev audit; do $(BIN)/uv pip compile --quiet --generate-hashes --no-header --universal --python-version 3.11 requirements/$$name.in -o requirements/$$name.txt; done

fmt: setup ## format the code
	$(BIN)/ruff format . && $(BIN)/ruff check --fix-only --quiet .

reference: setup ## write docs/reference/ from the code, and the README of the chart's values
	$(BIN)/python tools/write_reference.py
	$(BIN)/python tools/write_chart_readme.py

lint: setup ## ruff, import contracts
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && PYTHONPATH=tests $(BIN)/lint-imports

types: setup ## mypy, strict
	$(BIN)/mypy

unit: setup ## unit, golden and tidy tests: Python alone, seconds
	QUICK=1 $(BIN)/pytest -q -n auto --dist worksteal --randomly-dont-reset-seed tests/unit tests/golden tests/tidy $(ARGS)

alerts: ## check the alert rules and run their tests (promtool)
	@command -v promtool >/dev/null || { echo "promtool is not installed: apt-get install prometheus (and stop the service that this starts)" >&2; exit 69; }
	promtool check rules monitoring/alerts.yaml
	promtool test rules monitoring/alerts_test.yaml

build/audit/.installed: requirements/audit.txt $(VENV)/.installed
	$(PYTHON) -m venv --clear build/audit
	$(BIN)/uv pip install --quiet --python build/audit/bin/python --require-hashes -r requirements/audit.txt
	touch $@

sbom: build/audit/.installed ## what the project depends on, in CycloneDX's format, in build/sbom
	mkdir -p build/sbom
	for name in runtime dev; do build/audit/bin/cyclonedx-py requirements --output-reproducible --of JSON -o build/sbom/$$name.cdx.json requirements/$$name.txt; done

audit: build/audit/.installed ## known vulnerabilities of dependencies; fails where the service cannot be reached
	$(BIN)/python tools/audit.py $(ARGS)

test: setup ## all tests: unit and real processes with a real ZooKeeper (needs a JDK 17)
ifdef ARGS
	$(BIN)/pytest -q tests $(addprefix --ignore=,$(JAVA_TESTS)) $(ARGS)
else
	if command -v go >/dev/null; then $(BIN)/python tools/k8s_tools.py; fi
	$(BIN)/pytest -q -n auto --max-worker-restart 0 --dist worksteal --randomly-dont-reset-seed tests/unit tests/golden tests/tidy tests/sim tests/scenarios
	$(BIN)/pytest -q -n 3 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder tests --ignore=tests/unit --ignore=tests/golden --ignore=tests/tidy --ignore=tests/sim --ignore=tests/scenarios --ignore=tests/chaos $(addprefix --ignore=,$(JAVA_TESTS))
	$(BIN)/pytest -q tests/chaos
endif

up: setup ## start the development cluster on loopback and wait until it is healthy; SECURE=1: with logins, TLS and ACLs
	$(BIN)/tidemark dev up $(if $(SECURE),--secure) $(ARGS)

down: setup ## stop the development cluster cleanly
	$(BIN)/tidemark dev down $(ARGS)

status: setup ## show the processes of the development cluster
	$(BIN)/tidemark dev status $(ARGS)

demo: setup ## the main job end to end, with kills: make demo INPUT=path FAULTS=none
	$(BIN)/python tools/demo.py $(if $(INPUT),--input $(INPUT)) $(if $(FAULTS),--faults $(FAULTS)) $(ARGS)

pictures: setup ## pictures of the console in docs/operating/pictures, from a real cluster (needs chromium)
	$(BIN)/python tools/pictures.py

sparkzip: setup ## build/tidemark_spark.zip and build/tidemark_jobs.zip for spark-submit --py-files
	$(BIN)/python tools/spark_zip.py

sparkclasses: setup ## archive of the classes of Spark's driver, with which it starts with less CPU (make demo uses it)
	$(BIN)/python tools/spark_classes.py

compiled: setup ## the same source with its hot modules compiled by mypyc (needs gcc); prints where: make compiled
	PYTHONPATH=tools $(BIN)/python -m compiled

compiled-test: setup ## end-to-end and chaos tests with the compiled modules: make compiled-test ARGS=-x
	COMPILED=1 PYTHONPATH=tools $(BIN)/python -m compiled $(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder tests/e2e $(ARGS)
	PYTHONPATH=tools $(BIN)/python -m compiled $(BIN)/pytest -q tests/chaos

images: setup ## container images of the services (compiled: needs gcc), ZooKeeper and Spark: make images ARGS=--pure
	PYTHONPATH=tools $(BIN)/python -m images $(ARGS)

k8s-up: setup ## start a Kubernetes cluster on this machine, with root and Go: make k8s-up NODES=1; PURE=1: nothing is compiled
	PYTHONPATH=tools $(BIN)/python -m images $(if $(PURE),--pure) tidemark zookeeper
	PYTHONPATH=tools $(BIN)/python -m lab up $(if $(NODES),--nodes $(NODES))

k8s-test: setup ## tests of the chart on the cluster of make k8s-up
	PYTHONPATH=tools $(BIN)/python -m lab status >/dev/null
	$(BIN)/pytest -q tests/k8s $(ARGS)

k8s-down: setup ## end the cluster of make k8s-up; nothing of it is left
	PYTHONPATH=tools $(BIN)/python -m lab down

bench: setup ## measure against a floor in the same run; JSON in bench-results/ and a table
	PYTHONPATH=tests $(BIN)/python -m bench $(ARGS)

bench-kafka: setup ## compare with Apache Kafka (Maven) and NATS JetStream (Go), three servers each; more than an hour
	PYTHONPATH=tests:tools $(BIN)/python -m bench.peers $(ARGS)

sim: setup ## simulate a cluster: make sim SEED=7 prints a line for each event; make sim SEEDS=1000 runs many seeds
	PYTHONPATH=tests $(BIN)/python -m sim $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) $(ARGS)

chaos: setup ## real faults on a real cluster: make chaos MINUTES=10 SEED=7
	PYTHONPATH=tests $(BIN)/python -m chaos --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: setup ## more seeds, longer chaos tests, repeated suites: make soak SEEDS=2000 MINUTES=30, make soak TIMES=10 BURN=4
	$(BIN)/python tools/soak.py $(if $(TIMES),--times $(TIMES)) $(if $(BURN),--burn $(BURN)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FIRST),--first $(FIRST)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

scenario: setup ## protocol scripts: make scenario S=name; REWRITE=1 rewrites the expected output
	REWRITE=$(REWRITE) $(BIN)/pytest -q tests/scenarios $(if $(S),-k $(S)) $(ARGS)

fuzz: setup ## hostile frames against a real broker: make fuzz SEED=7
	SEED=$(SEED) FRAMES=$(or $(FRAMES),200000) $(BIN)/pytest -q -s tests/e2e/test_fuzz.py $(ARGS)

conformance: setup ## Kafka's own Java clients and tools, Streams, franz-go, Spark's and Flink's connectors, HDFS (needs a JDK 17, Maven, Go)
	$(BIN)/pytest -q $(JAVA_TESTS) $(ARGS)

ci: lint types test ## everything that a machine checks, in this order

clean: ## remove what the targets above made (not the cluster's data)
	test ! -e build/k8s || { echo "a Kubernetes cluster is up: make k8s-down" >&2; exit 1; }
	rm -rf gen .mypy_cache .ruff_cache .pytest_cache build tests/conformance/java/target tests/conformance/flink/target tests/conformance/spark/target tests/conformance/hadoop/target
