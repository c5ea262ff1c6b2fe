# Thin front end; everything real is in CMakeLists.txt and scripts/.
BUILD ?= build
TESTS ?= build-tests

.PHONY: help demo build server test test-all bench format check clean install deb

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 16

demo: ## install what is missing, build, and run the demo model with room for a quarter of its experts
	@scripts/demo.sh $(BUILD)

build: ## build the command, the plug-in and the library
	@scripts/setup.sh build
	@cmake -S . -B $(BUILD) -G Ninja -DSLUICE_TESTS=OFF >/dev/null
	@cmake --build $(BUILD)

server: build ## the same, and llama.cpp's llama-server, which `sluice serve` starts
	@cmake --build $(BUILD) --target server

# All tests are built in one tree, and run as many at a time as there are processors for them.
define run_tests
	@scripts/setup.sh test
	@cmake -S . -B $(TESTS) -G Ninja -DSLUICE_TESTS=ON
	@cmake --build $(TESTS)
	@ctest --test-dir $(TESTS) --output-on-failure --no-tests=error -j $$(nproc) $(1)
endef

test: ## build and run the tests: unit, gates, faults, stock programs, sanitizers (docs/testing.md)
	$(call run_tests,-LE long)

test-all: ## run the long ones, which `make test` leaves out: every architecture, sanitizers whole, ARM, other releases
	$(call run_tests,-L long)

bench: ## measure MODEL=file.gguf with ARGS="--budgets 0,2000 --memory 6G" (see docs/benchmark-method.md)
	@$(BUILD)/bin/sluice bench -m "$(MODEL)" $(ARGS)

format: ## rewrite the sources with clang-format
	@git ls-files '*.c' '*.h' | xargs clang-format -i

check: ## check formatting and the include rules, without building
	@git ls-files '*.c' '*.h' | xargs clang-format --dry-run --Werror
	@bash tests/include-rules.sh .

# Under sudo nothing is built: root has a cache of its own, and would build llama.cpp anew there.
install: $(if $(SUDO_USER),,build) ## install to PREFIX (/usr/local), below DESTDIR if that is given (docs/install.md)
	@[ -x $(BUILD)/bin/sluice ] || { echo "not built yet: run make build first, not as root" >&2; exit 1; }
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix "$(abspath $(or $(PREFIX),/usr/local))" >/dev/null
	@echo "installed: $(DESTDIR)$(abspath $(or $(PREFIX),/usr/local))/bin/sluice"

deb: build ## make a Debian package of it, in BUILD (docs/install.md)
	@scripts/setup.sh deb
	@cd $(BUILD) && cpack -G DEB

clean: ## remove the build directories (not the cached llama.cpp)
	@rm -rf $(BUILD) $(TESTS)
