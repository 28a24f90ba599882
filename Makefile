# Thin front of meson and the scripts in tools/. Everything is built in build/.
# `sudo make demo` and `sudo make check` start from a fresh clone.
PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build
BENCH ?= create
# Words that choose test files: make check TESTS="aether crash"
TESTS ?=

.PHONY: all setup demo check bench install clean

all: $(BUILD)/build.ninja
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	meson setup $(BUILD) --prefix=$(PREFIX)

setup:
	tools/setup.sh

demo: setup all
	python3 examples/demo.py --build-dir $(BUILD)

check: setup all
	python3 tools/check.py $(BUILD) $(TESTS)

bench: setup all
	bench/run $(BENCH)

# The libexec directory is compiled in, so a new prefix means a new link.
install: all
	meson configure $(BUILD) --prefix=$(PREFIX) >/dev/null
	ninja -C $(BUILD)
	DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

clean:
	rm -rf $(BUILD) $(BUILD)-asan
