# Everything here needs make and Python 3.11 to 3.14; the rest is installed into the checkout on first use.
PYTHON ?= python3
INSTALL := $(PYTHON) platform/console/local/install.py
BIN := .venv/bin
LOCK := UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes

# make run [PORT=8080] [ENGINE=vllm|simulated] [ENGINE_URL=http://host:port/v1 [ENGINE_MODEL=name] [ENGINE_API_KEY=key]]
.PHONY: run
run:
	@exec $(INSTALL) run -- -m console.local.run

# Make this machine a GPU host: make join ARGS="--broker rediss://… --token-file token --model-path /models/x"
# [ENGINE=vllm|simulated] [ENGINE_URL=http://host:port/v1] as for make run: what is installed depends on it.
.PHONY: join
join: ENGINE_FLAGS = $(if $(ENGINE_URL),--engine openai --engine-url $(ENGINE_URL),$(if $(ENGINE),--engine $(ENGINE)))
join:
	@exec $(INSTALL) join -- -m gpu_workers.join $(ENGINE_FLAGS) $(ARGS)

# make test [ARGS="-k name"]
.PHONY: test
test:
	@$(INSTALL) test
	@exec $(BIN)/python -m pytest $(ARGS)

.PHONY: lint
lint:
	@$(INSTALL) lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# make bench [ARGS="..."]
.PHONY: bench
bench:
	@$(INSTALL) lint
	@exec $(BIN)/python -m tests.bench $(ARGS)

# Compile the pinned lists anew after a change to requirements/*.in.
.PHONY: lock
lock:
	@$(INSTALL) lint
	$(LOCK) requirements/platform.in --output-file requirements.txt
	$(LOCK) requirements/dev.in --output-file requirements/dev.txt
	$(LOCK) requirements/engine-cpu.in --override requirements/engine-exclude.txt --output-file requirements/engine-cpu.txt
	$(LOCK) requirements/engine-gpu.in --output-file requirements/engine-gpu.txt
	$(LOCK) requirements/torch.in --output-file requirements/torch.txt
