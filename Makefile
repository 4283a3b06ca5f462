# The front door. The build itself is CMake's; see CMakePresets.json.

PREFIX ?= /usr/local
prefix ?= $(PREFIX)
exec_prefix ?= $(prefix)
bindir ?= $(exec_prefix)/bin
libdir ?= $(exec_prefix)/lib
includedir ?= $(prefix)/include
datarootdir ?= $(prefix)/share
mandir ?= $(datarootdir)/man

.PHONY: all run test deps asan tsan fuzz soak format lint check-layers install uninstall clean help

all: deps
	@cmake --preset release > /dev/null
	@cmake --build --preset release

run: all
	build/onebit chat

test:
	scripts/test.sh

deps:
	@scripts/deps.sh build

asan:
	@scripts/deps.sh build test
	cmake --preset asan > /dev/null
	cmake --build --preset asan
	ctest --test-dir build-asan --output-on-failure -j2

tsan:
	@scripts/deps.sh build test
	cmake --preset tsan > /dev/null
	cmake --build --preset tsan
	ctest --test-dir build-tsan --output-on-failure -j2

fuzz:
	@scripts/deps.sh build test
	cmake --preset fuzz > /dev/null
	cmake --build --preset fuzz
	scripts/soak.sh build-fuzz 30

soak:
	@scripts/deps.sh build test
	cmake --preset fuzz > /dev/null
	cmake --build --preset fuzz
	scripts/soak.sh build-fuzz 1800
	cmake --preset release > /dev/null
	cmake --build --preset release
	build/tests/test_session_walks 200 1000
	build/tests/test_snapshot 200

format:
	@scripts/deps.sh test
	scripts/format.sh fix

lint:
	@scripts/deps.sh build test
	@cmake --preset release > /dev/null
	@cmake --build --preset release
	scripts/lint.sh build

check-layers:
	scripts/check_layers.sh --self-test
	scripts/check_layers.sh

install: all
	cmake -S . -B build -DCMAKE_INSTALL_PREFIX="$(prefix)" -DCMAKE_INSTALL_BINDIR="$(bindir)" \
	    -DCMAKE_INSTALL_LIBDIR="$(libdir)" -DCMAKE_INSTALL_INCLUDEDIR="$(includedir)" \
	    -DCMAKE_INSTALL_DATAROOTDIR="$(datarootdir)" -DCMAKE_INSTALL_MANDIR="$(mandir)" > /dev/null
	cmake --build build
	DESTDIR="$(DESTDIR)" cmake --install build

uninstall:
	rm -f "$(DESTDIR)$(bindir)/onebit" "$(DESTDIR)$(includedir)/onebit.h" \
	    "$(DESTDIR)$(libdir)/libonebit.a" "$(DESTDIR)$(libdir)/pkgconfig/onebit.pc" \
	    "$(DESTDIR)$(mandir)/man1/onebit.1" \
	    "$(DESTDIR)$(datarootdir)/bash-completion/completions/onebit"

clean:
	rm -rf build build-asan build-clang build-debug build-fuzz build-tsan

help:
	@echo "make               install what is missing, build build/onebit"
	@echo "make run           build, then talk with the model that comes with the sources"
	@echo "make test          every check and test, as continuous integration runs them"
	@echo "make asan          the tests under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make tsan          the tests under ThreadSanitizer"
	@echo "make fuzz          every fuzz target for half a minute"
	@echo "make soak          every fuzz target for half an hour, 200 random walks of sessions, 200 killed saves"
	@echo "make format        lay all C files out with clang-format"
	@echo "make lint          clang-tidy and cppcheck"
	@echo "make check-layers  the include rule, file sizes, forbidden calls"
	@echo "make install       into PREFIX (default /usr/local); DESTDIR and bindir etc. as usual"
	@echo "make uninstall     the reverse, with the same variables"
	@echo "make deps          install what the build needs (Debian)"
	@echo "make clean         remove the build folders"
