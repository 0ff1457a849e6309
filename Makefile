# A short way to say what meson and the scripts do. `make help` lists the jobs.
.PHONY: all demo check test test-rdma test-kernel coverage mutants hunt counted soak bench figures figures-quick report install uninstall packages format clean help

all:
	@scripts/deps build
	@scripts/configure
	@ninja -C build release

demo:
	@scripts/deps demo
	@scripts/configure xdp
	@$(MAKE) --no-print-directory all
	@scripts/demo

check:
	@scripts/deps check
	@scripts/configure
	@scripts/check

test:
	@scripts/deps test
	@scripts/run-tests

test-rdma:
	-@scripts/deps rdma
	@scripts/configure
	@ninja -C build pawl tests/udp_ofi tests/udp_node_mixed tests/udp_node_ofi tests/udp_ofi_trial
	@tests/rdma-vm/run build

test-kernel:
	-@scripts/deps rdma
	@scripts/configure
	@ninja -C build tests/xdp_fission tests/xdp_fission_many tests/xdp_netlock_same tests/xdp_memory
	@tests/rdma-vm/kernel build

coverage:
	@scripts/deps test
	@scripts/coverage
	@scripts/configure xdp
	@$(MAKE) --no-print-directory all
	@ninja -C build
	@tests/xdp/coverage.py

mutants:
	@scripts/deps build
	@scripts/mutants
	@scripts/mutants --report

hunt: MINUTES ?= 10
hunt: $(if $(COUNT),counted,all)
	@LLVM_PROFILE_FILE=/dev/null $(if $(COUNT),build-counted,build)/pawl hunt --minutes $(MINUTES) $(if $(DESIGN),--design $(DESIGN)) $(if $(CAMPAIGN),--campaign $(CAMPAIGN))

counted:
	@scripts/deps counted
	@scripts/configure counted
	@ninja -C build-counted pawl

soak: all
	@scripts/soak

bench:
	@scripts/deps bench
	@scripts/configure xdp
	@$(MAKE) --no-print-directory all
	@ninja -C build benchmarks
	@scripts/bench

figures: all
	@scripts/figures
	@scripts/evaluation

figures-quick: all
	@scripts/figures --quick

report:
	@scripts/deps report
	@scripts/evaluation
	@scripts/report

install: all
	@scripts/install $(PREFIX)

uninstall:
	@scripts/install --remove

packages:
	@scripts/packages build/packages

format:
	@scripts/deps format
	@find src include tests bench examples -name '*.[ch]' 2>/dev/null | xargs clang-format -i

clean:
	@rm -rf build build-*

help:
	@echo 'make          build the release into build/, the command is build/pawl'
	@echo 'make demo     build it and show what it does, in under two minutes'
	@echo 'make check    build it and run the fast tests: the inner loop, in under three minutes'
	@echo 'make test     the whole suite under the sanitizers; ends with "N passed, N failed, N skipped"'
	@echo 'make test-rdma  one-sided designs on RDMA cards of software, in emulated guests; under five minutes'
	@echo 'make test-kernel  the programs for the kernel in the kernel of Debian 12, in an emulated guest; under five minutes'
	@echo 'make coverage branches that campaigns and tests take: of the protocols (docs/coverage.md), of programs for the kernel; needs root'
	@echo 'make mutants  changes of the protocols that campaigns and tests notice; takes hours, writes docs/mutants.md'
	@echo 'make hunt     random seeds of all designs for ten minutes, or until one fails; MINUTES=N, DESIGN=D,D..., COUNT=1: counts branches'
	@echo 'make soak     the long versions of the torture tests; writes docs/soak.md'
	@echo 'make bench    measure on this machine'
	@echo 'make figures  the figures of the papers in the simulated cluster; writes docs/figures/ and docs/evaluation.md'
	@echo 'make figures-quick  headline figures in shorter windows, in about five minutes; writes build/figures-quick'
	@echo 'make report   the evaluation as one page for a browser, with plots: build/report.html'
	@echo 'make install  install command, libraries, header, manual pages and completion; PREFIX=DIR, else /usr/local (DESTDIR is respected)'
	@echo 'make uninstall  remove what was installed last'
	@echo 'make packages build Debian packages in an empty Debian, install, use and remove them there; needs root; writes build/packages'
	@echo 'make format   format the C sources'
	@echo 'make clean    remove everything that was built'
	@echo 'Each installs the Debian packages it lacks, as root or through sudo.'
