# driftscope: one Makefile. `make help` lists the targets.
# Variables: BUILD=folder  PREFIX=/usr/local  DESTDIR=  CC=  CXX=  CFLAGS=  CXXFLAGS=  LDFLAGS=  WERROR=1  SAN=1 (address and undefined) or SAN=thread

BUILD  ?= build
PREFIX ?= /usr/local
ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := g++
endif
INSTALL ?= install

.PHONY: all
all: $(BUILD)/driftscope ## build driftscope and the specimens of its self test

# ---- flags: the rules of numbers (no contraction, no reassociation) hold for every object ---------------------------------
HDF5_CFLAGS := $(shell pkg-config --cflags hdf5-serial 2>/dev/null)
HDF5_LIBS   := $(shell pkg-config --libs hdf5-serial 2>/dev/null)
CURSES_CFLAGS := $(shell pkg-config --cflags ncursesw 2>/dev/null)
CURSES_LIBS   := $(shell pkg-config --libs ncursesw 2>/dev/null)
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wdouble-promotion -Wvla -Wmissing-prototypes $(if $(WERROR),-Werror)
NUMBERS := -O2 -ffp-contract=off
SANITIZE        := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
SANITIZE_thread := -fsanitize=thread -fno-omit-frame-pointer
SANFLAGS := $(if $(SAN),$(or $(SANITIZE_$(SAN)),$(SANITIZE)))
DS_CFLAGS  := -std=c11 -D_GNU_SOURCE= -g $(NUMBERS) $(WARN) -I. -include base/numbers.h -MMD -MP -fPIC -pthread $(SANFLAGS)
DS_LDFLAGS := -pthread $(SANFLAGS)
# No part of the C++ library is linked: no exceptions, no run-time types. Shared memory of kernels gets red zones under SAN=1.
CXXWARN     := -Wall -Wextra -Wshadow -Wdouble-promotion -Wvla $(if $(WERROR),-Werror)
DS_CXXFLAGS := -std=c++20 -g $(NUMBERS) $(CXXWARN) -I. -include base/numbers.h -MMD -MP -fPIC -pthread \
    -fno-exceptions -fno-rtti -fno-threadsafe-statics $(SANFLAGS) $(if $(SAN),-fsanitize-sections=ds_shared*)

# No flag may let the compiler or the linker change arithmetic. base/numbers.h finds them in the compiler's own state, too.
FAST_FLAGS := -ffast-math -Ofast -funsafe-math-optimizations -fassociative-math -freciprocal-math -ffinite-math-only \
    -fno-signed-zeros -fno-trapping-math -fcx-limited-range -fsingle-precision-constant -mdaz-ftz -mrecip% -mfpmath=% \
    -ffp-contract=fast -ffp-contract=on -ffp-model=% -use_fast_math --use_fast_math
FAST_FOUND := $(filter $(FAST_FLAGS),$(CC) $(CXX) $(CFLAGS) $(CXXFLAGS) $(CPPFLAGS) $(LDFLAGS) $(DS_CFLAGS) $(DS_CXXFLAGS) $(DS_LDFLAGS) $(NVCCFLAGS))
ifneq ($(FAST_FOUND),)
$(error fast-math flag: $(FAST_FOUND). It changes the sums that driftscope judges (see base/numbers.h); remove it)
endif

# ---- what is built --------------------------------------------------------------------------------------------------------
ROOMS := base kernels probes dumps report tui engine cli
src    = $(wildcard $(1)/*.c) $(if $(filter kernels,$(1)),$(wildcard kernels/cpu/*.c kernels/lab/*.c kernels/sim/*.c))
# The text of CUDA kernels, compiled by the C++ compiler into the device sim.
# Twice, for CPUs with fused multiply-add (else a call of the C library each) and without: the same bits.
SIM_OBJECTS := $(patsubst %,$(BUILD)/%.o,$(wildcard kernels/sim/*.cc kernels/cuda/*.cu) $(patsubst %.cu,%.fma.cu,$(wildcard kernels/cuda/*.cu)))
obj    = $(patsubst %.c,$(BUILD)/%.o,$(call src,$(1))) $(if $(filter kernels,$(1)),$(SIM_OBJECTS))
LIBS   := $(ROOMS:%=$(BUILD)/lib%.a)

# Dependencies point one way; each room links what stands below it.
BELOW_base    :=
BELOW_kernels := base
BELOW_dumps   := base
BELOW_probes  := dumps base
BELOW_report  := dumps base
BELOW_engine  := probes kernels dumps base
BELOW_tui     := report dumps base
BELOW_cli     := tui report engine probes kernels dumps base
EXT_base      := -lm
EXT_kernels   := -lxxhash -ljansson -ldl -lm
EXT_dumps     := $(HDF5_LIBS) -lxxhash -lm
EXT_probes    := $(EXT_dumps)
EXT_report    := $(EXT_dumps)
EXT_engine    := $(HDF5_LIBS) -lxxhash -lpcre2-8 -ljansson -ldl -lm
EXT_tui       := $(EXT_dumps) $(CURSES_LIBS) -ljansson
EXT_cli       := $(EXT_engine) $(CURSES_LIBS) -ljansson

# Plugins for the device sim use what runs it.
EXPORTS := -Wl,--dynamic-list=kernels/sim/exports.list
$(BUILD)/driftscope: $(LIBS) kernels/sim/exports.list
	$(CC) $(DS_LDFLAGS) $(EXPORTS) -o $@ -Wl,--start-group $(LIBS) -Wl,--end-group $(EXT_cli) $(LDFLAGS)

define room_rules
$(BUILD)/lib$(1).a: $$(call obj,$(1))
	@rm -f $$@
	$(AR) rcs $$@ $$^
# Unit tests: tests/unit/ROOM/test_X.c -> build/tests/unit/ROOM/test_X, linked with the room and those below.
$(BUILD)/tests/unit/$(1)/%: tests/unit/$(1)/%.c $(BUILD)/lib$(1).a $(BELOW_$(1):%=$(BUILD)/lib%.a)
	@mkdir -p $$(@D)
	$(CC) $$(DS_CFLAGS) $$(CFLAGS_$(1)) $$(CPPFLAGS) $$(CFLAGS) -MF $$@.d -o $$@ $$< $$(filter %.o,$$^) $(BUILD)/lib$(1).a \
	    $(BELOW_$(1):%=$(BUILD)/lib%.a) $$(EXT_$(1)) -lcmocka $$(LDFLAGS)
endef
$(foreach room,$(ROOMS),$(eval $(call room_rules,$(room))))

$(BUILD)/tests/unit/kernels/test_sim: $(BUILD)/tests/unit/kernels/sim_kernels.cu.o
$(BUILD)/tests/unit/kernels/test_far: $(BUILD)/tests/unit/kernels/false_device.cu.o
# The same on portable fibers, which stand in for those of the library, as does what enters them.
$(BUILD)/tests/unit/kernels/test_sim_portable: $(patsubst %,$(BUILD)/tests/unit/kernels/%.o,sim_kernels.cu portable_fiber portable_sim portable_launch portable_fault)
$(BUILD)/tests/unit/kernels/portable_%.o: kernels/sim/%.cc
	@mkdir -p $(@D)
	$(CXX) $(DS_CXXFLAGS) $(CPPFLAGS) $(CXXFLAGS) -DDS_SIM_UCONTEXT -c -o $@ $<

CFLAGS_dumps := $(HDF5_CFLAGS)
CFLAGS_tui := $(HDF5_CFLAGS)

# Tests of the whole program and with the real model are linked with every room; fuzz targets have a main that feeds them seeded mutations.
define program_rules
$(BUILD)/tests/$(1)/%: tests/$(1)/%.c $(LIBS)
	@mkdir -p $$(@D)
	$(CC) $$(DS_CFLAGS) $(HDF5_CFLAGS) $$(CPPFLAGS) $$(CFLAGS) -MF $$@.d -o $$@ $$< \
	    -Wl,--start-group $(LIBS) -Wl,--end-group $(EXT_cli) -lcmocka $$(LDFLAGS)
endef
$(foreach kind,whole real tui tools,$(eval $(call program_rules,$(kind))))
$(BUILD)/tests/fuzz/%: tests/fuzz/%.c $(BUILD)/tests/fuzz/standalone_main.o $(LIBS)
	@mkdir -p $(@D)
	$(CC) $(DS_CFLAGS) $(HDF5_CFLAGS) $(CPPFLAGS) $(CFLAGS) -MF $@.d -o $@ $< $(BUILD)/tests/fuzz/standalone_main.o \
	    -Wl,--start-group $(LIBS) -Wl,--end-group $(EXT_cli) -lcmocka $(LDFLAGS)

.SECONDARY: $(BUILD)/tests/fuzz/standalone_main.o

# Code for one instruction set lives in a file of its own, named after it; it is reached only after a CPU check.
%_avx2.o:   ISA := -mavx2 -mfma
$(BUILD)/kernels/%_avx2.o: ISA := -mavx2 -mfma -mf16c
%_avx512.o: ISA := -mavx512f -mavx512vl -mavx512bw -mavx512dq -mfma -mprefer-vector-width=512
$(BUILD)/dumps/%.o: ROOM_CFLAGS := $(HDF5_CFLAGS)
$(BUILD)/tui/%.o: ROOM_CFLAGS := $(CURSES_CFLAGS)
$(BUILD)/cli/environment.o: ROOM_CFLAGS := $(HDF5_CFLAGS) -I$(BUILD)
$(BUILD)/cli/environment.o: $(BUILD)/build_info.h
$(BUILD)/cli/explain_reproduce.o: ROOM_CFLAGS := -I$(BUILD)
$(BUILD)/cli/explain_reproduce.o: $(BUILD)/reproduce_text.h

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(DS_CFLAGS) $(ROOM_CFLAGS) $(CPPFLAGS) $(CFLAGS) $(ISA) -c -o $@ $<

$(BUILD)/%.cc.o: %.cc
	@mkdir -p $(@D)
	$(CXX) $(DS_CXXFLAGS) $(CPPFLAGS) $(CXXFLAGS) -c -o $@ $<
# Shared memory of a file's kernels has a section of its own, which is poisoned before each of their blocks. g++ leaves the static
# variables of templates in .bss whatever their section attribute says: they go there, too. Nothing else of a .cu file is in .bss.
OBJCOPY ?= objcopy
shared_name    = ds_shared_$(notdir $*)$(1)
shared_section = $(OBJCOPY) --set-section-flags .bss=alloc,load,contents,data --rename-section .bss=$(call shared_name,$(1)) $@
$(BUILD)/%.fma.cu.o: %.cu
	@mkdir -p $(@D)
	$(CXX) $(DS_CXXFLAGS) -mavx2 -mfma -mf16c -DDS_SIM_FMA -DDS_SIM_SHARED=$(call shared_name,_fma) $(CPPFLAGS) $(CXXFLAGS) -x c++ -c -o $@ $<
	@$(call shared_section,_fma)
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(CXX) $(DS_CXXFLAGS) -DDS_SIM_SHARED=$(shared_name) $(CPPFLAGS) $(CXXFLAGS) -x c++ -c -o $@ $<
	@$(shared_section)

-include $(shell find $(BUILD) -name '*.d' -type f 2>/dev/null)

# Version, compiler and flags for the record. Written anew only when they change. A checkout inside another project's
# repository does not take that project's version for its own.
$(BUILD)/build_info.h: always
	@mkdir -p $(@D)
	@git_version=unknown; \
	if [ "$$(git rev-parse --show-toplevel 2>/dev/null)" = "$$(pwd -P)" ]; then \
	    git_version=$$(git describe --always --dirty --tags 2>/dev/null || echo unknown); fi; \
	escape() { printf '%s' "$$1" | tr '\n\t' '  ' | sed 's/[\\"]/\\&/g'; }; \
	{ echo '/* Made by the Makefile. */'; \
	  printf '#define DS_BUILD_GIT "%s"\n' "$$(escape "$$git_version")"; \
	  printf '#define DS_BUILD_COMPILER "%s"\n' "$$(escape "$$($(CC) --version | sed 1q)")"; \
	  printf '#define DS_BUILD_FLAGS "%s"\n' "$$(escape '$(strip -std=c11 $(NUMBERS) $(SANFLAGS) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS))')"; \
	} > $@.new; \
	if cmp -s $@.new $@; then rm -f $@.new; else mv $@.new $@; fi

# The texts of programs that `explain --reproducer` writes: a string for each part.
REPRODUCE_PARTS := $(wildcard cli/reproduce/*.c.in)
$(BUILD)/reproduce_text.h: $(REPRODUCE_PARTS)
	@mkdir -p $(@D)
	@{ echo '/* Made by the Makefile from cli/reproduce. */'; \
	   for part in $^; do \
	       printf 'static const char reproduce_%s[] =\n' "$$(basename "$$part" .c.in)"; \
	       sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/    "&\\n"/' "$$part"; echo '    ;'; \
	   done; } > $@

# Sources may not ask for other arithmetic either.
SOURCES := $(wildcard $(ROOMS:%=%/*.[ch]) examples/*/*.[ch] examples/*/*.cu kernels/cpu/*.[ch] kernels/lab/*.[ch] kernels/*/*.cu kernels/*/*.cuh kernels/sim/*.cc kernels/sim/*.h tests/*/*.[ch] tests/*/*/*.[ch])
$(BUILD)/numbers-checked: $(SOURCES) tests/tools/check_numbers
	@mkdir -p $(@D)
	@tests/tools/check_numbers $(SOURCES)
	@touch $@
$(BUILD)/driftscope: | $(BUILD)/numbers-checked

# ---- the library of the device cuda: the same .cu texts by nvcc, and a runtime; opened at run time, so that nothing else here
# depends on CUDA. CUDA_ARCH: architectures with code of their own; the last one's PTX is for later ones.
NVCC := $(or $(shell command -v nvcc 2>/dev/null),$(wildcard $(CUDA_HOME)/bin/nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
# Of these four, those that the compiler knows.
CUDA_KNOWN := $(patsubst compute_%,%,$(if $(NVCC),$(shell $(NVCC) --list-gpu-arch 2>/dev/null)))
ifeq ($(origin CUDA_ARCH),undefined)
CUDA_ARCH := $(or $(filter $(CUDA_KNOWN),80 90 100 120),80 90)
endif
CUDA_SOURCES := $(wildcard kernels/cuda/*.cu kernels/cuda/library/*.cu)
CUDA_OBJECTS := $(CUDA_SOURCES:%.cu=$(BUILD)/cuda/%.o)
CUDA_CODE    := $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a),code=sm_$(a)) \
    -gencode arch=compute_$(lastword $(CUDA_ARCH)),code=compute_$(lastword $(CUDA_ARCH))
# nvcc changes how GCC sees #warning and pedantic things: -Wall is what it can bear.
NVCC_FLAGS   := -std=c++20 -O2 -fmad=false -I. -include base/numbers.h -Xcompiler -fPIC,-ffp-contract=off,-fvisibility=hidden,-Wall \
    -DDS_CUDA_ARCHITECTURES='"$(CUDA_ARCH)"' --threads 2 -diag-suppress 128 $(if $(WERROR),-Werror all-warnings)
.PHONY: cuda
ifneq ($(NVCC),)
cuda: $(BUILD)/libdriftscope_cuda.so ## build libdriftscope_cuda.so with nvcc: CUDA_ARCH="80 90 100 120"
else
cuda:
	@echo "make cuda: there is no nvcc in PATH, \$$CUDA_HOME/bin or /usr/local/cuda/bin"; exit 1
endif
.PHONY: cuda-registers
cuda-registers: ## registers, shared memory and spills of each CUDA kernel, for the last of CUDA_ARCH
	@NVCC='$(NVCC)' tests/tools/cuda_registers $(lastword $(CUDA_ARCH)) $(filter-out kernels/cuda/library/%,$(CUDA_SOURCES))
$(BUILD)/cuda/%.o: %.cu $(wildcard kernels/*.h kernels/cuda/*.h kernels/cuda/*.cuh kernels/cuda/library/*.h kernels/sim/kernels.h) $(BUILD)/cuda/arch
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) $(CUDA_CODE) -c -o $@ $<
# Other architectures: everything anew.
$(BUILD)/cuda/arch: always
	@mkdir -p $(@D)
	@echo '$(CUDA_ARCH)' | cmp -s - $@ || echo '$(CUDA_ARCH)' > $@
$(BUILD)/libdriftscope_cuda.so: $(CUDA_OBJECTS)
	$(NVCC) -shared -cudart static -Xcompiler -static-libstdc++,-static-libgcc -Xlinker --no-undefined -o $@ $^ -ldl

# The same library for tests, by the C++ compiler: kernels run on sim, against the CUDA runtime and the cublasLt of tests/cuda.
TEST_CUDA := $(BUILD)/tests/cuda
TEST_CUDA_OBJECTS := $(CUDA_SOURCES:%.cu=$(TEST_CUDA)/%.o) $(TEST_CUDA)/tests/cuda/runtime.o
TEST_CUDA_FLAGS = $(DS_CXXFLAGS) -DDS_CUDA_ON_SIM -DDS_CUDA_WATCH_SECONDS=2 '-DDS_CUBLASLT_WORKSPACE=(1 << 20)' -DDS_CUDA_ARCHITECTURES='"tests"' -Itests/cuda -fvisibility=hidden -Wno-shadow
$(TEST_CUDA)/kernels/cuda/library/%.o: kernels/cuda/library/%.cu # no kernel there has shared memory, and variables it has
	@mkdir -p $(@D)
	$(CXX) $(TEST_CUDA_FLAGS) $(CPPFLAGS) $(CXXFLAGS) -x c++ -c -o $@ $<
$(TEST_CUDA)/%.o: %.cu
	@mkdir -p $(@D)
	$(CXX) $(TEST_CUDA_FLAGS) -DDS_SIM_SHARED=$(shared_name) $(CPPFLAGS) $(CXXFLAGS) -x c++ -c -o $@ $<
	@$(shared_section)
$(TEST_CUDA)/%.o: %.cc
	@mkdir -p $(@D)
	$(CXX) $(TEST_CUDA_FLAGS) $(CPPFLAGS) $(CXXFLAGS) -c -o $@ $<
$(TEST_CUDA)/libdriftscope_cuda.so: $(TEST_CUDA_OBJECTS) $(BUILD)/libkernels.a $(BUILD)/libbase.a
	$(CXX) $(DS_LDFLAGS) -shared -Wl,-Bsymbolic -Wl,--no-undefined -o $@ $(TEST_CUDA_OBJECTS) $(BUILD)/libkernels.a $(BUILD)/libbase.a -ldl -lm $(LDFLAGS)
$(TEST_CUDA)/libcublasLt.so.13: $(TEST_CUDA)/tests/cuda/cublaslt.o $(BUILD)/libbase.a
	$(CXX) $(DS_LDFLAGS) -shared -Wl,-Bsymbolic -Wl,--no-undefined -o $@ $^ -lm $(LDFLAGS)
TEST_CUDA_LIBRARIES := $(TEST_CUDA)/libdriftscope_cuda.so $(TEST_CUDA)/libcublasLt.so.13

# ---- specimens: known faults as one plugin and the cases that use them; built against the public header alone -----------------
SPECIMEN_SOURCES := $(wildcard tests/specimens/*.c)
SPECIMEN_CASES   := $(wildcard tests/specimens/*.case)
SPECIMEN_FILES   := $(BUILD)/specimens/specimens.so $(SPECIMEN_CASES:tests/specimens/%=$(BUILD)/specimens/%)
all: $(SPECIMEN_FILES)
# A case that went, or has another name now, must not stay behind.
STALE_CASES := $(filter-out $(SPECIMEN_FILES),$(wildcard $(BUILD)/specimens/*.case))
ifneq ($(STALE_CASES),)
$(shell rm -f $(STALE_CASES))
endif
$(BUILD)/specimens/%.o: tests/specimens/%.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE= -g $(NUMBERS) $(WARN) -Ikernels -include base/numbers.h -MMD -MP -fPIC -pthread $(SANFLAGS) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<
$(BUILD)/specimens/specimens.so: $(SPECIMEN_SOURCES:tests/specimens/%.c=$(BUILD)/specimens/%.o)
	$(CC) $(DS_LDFLAGS) -shared -o $@ $^ -lm $(LDFLAGS)
$(BUILD)/specimens/%.case: tests/specimens/%.case
	@mkdir -p $(@D)
	@cp $< $@

# ---- tests ------------------------------------------------------------------------------------------------------------------
UNIT_TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/*/test_*.c))
PROGRAM_TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/whole/test_*.c tests/tui/test_*.c tests/real/test_real_*.c))
FUZZ_TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/fuzz/fuzz_*.c))
CLI_TESTS  := $(wildcard tests/cli/test_*.sh tests/tui/test_*.sh)

.PHONY: unit tests test asan tsan tsan-test fuzz
unit: $(UNIT_TESTS)
tests: all $(UNIT_TESTS) $(PROGRAM_TESTS) $(FUZZ_TESTS) $(BUILD)/tests/tools/make_tui_records $(BUILD)/tests/tools/make_big_records $(BUILD)/tests/tools/alloc_fail $(BUILD)/tests/tools/far_away $(TEST_CUDA_LIBRARIES)
# tests/cli makes the same variant again (install): they must use the same variables.
SAME_MAKE = $(MAKE) --no-print-directory BUILD='$(BUILD)' SAN='$(SAN)' WERROR='$(WERROR)' CC='$(CC)' CFLAGS='$(CFLAGS)' \
    CPPFLAGS='$(CPPFLAGS)' LDFLAGS='$(LDFLAGS)'
test: tests ## build and run all tests; the last line is "N passed, N failed, N skipped"
	@DRIFTSCOPE=$(BUILD)/driftscope DS_MAKE="$(SAME_MAKE)" \
	    tests/run $(UNIT_TESTS) $(FUZZ_TESTS) $(CLI_TESTS) $(PROGRAM_TESTS)
asan: ## the same tests with address and undefined-behaviour sanitizers, in a build folder of their own
	@$(MAKE) --no-print-directory SAN=1 BUILD=$(BUILD)-asan test

# Where threads or processes share memory: the team and what is spread over it, held rows, neighbours of --load, parts of diff, the terminal
# UI beside a growing record. Suppressed is only what libraries do that are not built so: tests/tsan.supp has the reasons.
# test_data_memory asks the C library's allocator, in whose place the sanitizer stands.
TSAN_TESTS := $(filter $(patsubst %,$(BUILD)/tests/unit/%,base/% probes/% tui/% dumps/test_diff dumps/test_parts dumps/test_partings \
    dumps/test_record_follow engine/test_file_weights engine/test_forward engine/test_forward_calls engine/test_load engine/test_model \
    engine/test_sweep engine/test_worker kernels/test_lab kernels/test_timing kernels/test_variants) \
    $(BUILD)/tests/tui/%,$(filter-out %/tui/test_data_memory,$(UNIT_TESTS) $(PROGRAM_TESTS))) tests/tui/test_run_tui.sh
tsan: ## tests of code with threads under the thread sanitizer, in a build folder of their own
	@$(MAKE) --no-print-directory SAN=thread BUILD=$(BUILD)-tsan tsan-test
tsan-test: all $(filter $(BUILD)/%,$(TSAN_TESTS)) $(BUILD)/tests/tools/make_tui_records
	@DRIFTSCOPE=$(BUILD)/driftscope TSAN_OPTIONS="suppressions=$(CURDIR)/tests/tsan.supp $$TSAN_OPTIONS" tests/run $(TSAN_TESTS)

# Code for CPUs that this machine may not be; see tests/tools/emulate.
.PHONY: emulate
EMULATED := $(addprefix $(BUILD)/tests/unit/kernels/test_,registry pinned rows attention attention_features order_blas) \
    $(BUILD)/tests/unit/engine/test_file_weights
emulate: $(EMULATED) ## run the tests of AVX-512 code and of OpenBLAS's core SkylakeX on an emulated CPU (Debian's bochs; long)
	@tests/tools/emulate $(EMULATED)

.PHONY: lint format
lint: ## warnings as errors in a build folder of their own; cppcheck and man page warnings where the tools are there
	@$(MAKE) --no-print-directory WERROR=1 BUILD=$(BUILD)-lint tests
	@if command -v cppcheck >/dev/null; then \
	    cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --error-exitcode=1 \
	        --suppress=missingIncludeSystem -I. $(ROOMS) && echo "lint: cppcheck found nothing"; \
	else echo "lint: no cppcheck here, skipped"; fi
	@if command -v man >/dev/null; then \
	    $(BUILD)-lint/driftscope help --man > $(BUILD)-lint/driftscope.1; \
	    warnings=$$(LC_ALL=C MANROFFSEQ= MANWIDTH=80 man --warnings -l $(BUILD)-lint/driftscope.1 2>&1 >/dev/null); \
	    if [ -n "$$warnings" ]; then echo "$$warnings"; exit 1; fi; \
	else echo "lint: no man here, skipped"; fi
format: ## clang-format the files given: make format FILES="cli/main.c"
	clang-format -i $(FILES)

# ---- the model and the first verdict ------------------------------------------------------------------------------------------
.PHONY: model mkl demo bench
model: ## fetch SmolLM2-135M (98 MB) into the cache folder
	@tests/tools/fetch_model

mkl: ## fetch two versions of Intel's MKL (1 GB) into the cache folder: the tests of --blas use them
	@tests/tools/fetch_mkl

# A machine that has only git and make gets the rest first; pkg-config's answers are right in a make started after that.
demo: ## install what is missing, build, fetch the model, run the main job, show the verdict
	@tests/tools/install_deps
	@$(MAKE) --no-print-directory all
	@tests/tools/demo $(BUILD)/driftscope $(BUILD)/demo.h5

bench: all ## time kernels, passes and probes on this machine
	@$(BUILD)/driftscope bench
.PHONY: proof
proof: $(BUILD)/tests/unit/kernels/test_order_blas ## replay OpenBLAS's orders of addition, core by core: rows 1 to 64 at every matmul shape of SmolLM2-135M (minutes)
	@DRIFTSCOPE_ORDER_FULL=1 $(BUILD)/tests/unit/kernels/test_order_blas

.PHONY: benchdiff
benchdiff: all $(BUILD)/tests/tools/make_big_records ## time diff on records with 1 GB of dumped rows, beside a plain read and h5diff if it is here
	@tests/tools/bench_diff $(BUILD)/driftscope $(BUILD)/tests/tools/make_big_records

.PHONY: benchsim
benchsim: all ## time the device sim
	@tests/tools/bench_sim $(BUILD)/driftscope

.PHONY: benchtui
benchtui: $(addprefix $(BUILD)/tests/tools/,bench_screen make_big_records make_wide_record) ## time the terminal UI on large records
	@tests/tools/bench_tui $(BUILD)/tests/tools

# ---- the machine --------------------------------------------------------------------------------------------------------------
.PHONY: deps
deps: ## install what building and testing need (Debian, Ubuntu; asks sudo when not root)
	@tests/tools/install_deps chromium

# Without this a missing library shows as a page of compiler errors.
ifneq ($(filter-out help deps demo model mkl clean uninstall format,$(or $(MAKECMDGOALS),all)),)
MISSING := $(shell for p in hdf5-serial libxxhash libpcre2-8 jansson ncursesw; do pkg-config --exists $$p 2>/dev/null || echo $$p; done)
ifneq ($(MISSING),)
$(error pkg-config does not find: $(MISSING). `make deps` installs what is missing)
endif
endif

# ---- install ------------------------------------------------------------------------------------------------------------------
BINDIR  := $(DESTDIR)$(PREFIX)/bin
INCDIR  := $(DESTDIR)$(PREFIX)/include
MANDIR  := $(DESTDIR)$(PREFIX)/share/man/man1
BASHDIR := $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSHDIR  := $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISHDIR := $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
SPECDIR := $(DESTDIR)$(PREFIX)/lib/driftscope/specimens
PLUGDIR := $(DESTDIR)$(PREFIX)/share/doc/driftscope/examples/plugin
PLUGIN_FILES := README.md Makefile pairwise.c axpy.c
# A plugin with a CUDA kernel, and the headers that it needs.
DEVICEDIR := $(DESTDIR)$(PREFIX)/share/doc/driftscope/examples/device
DEVICE_FILES := README.md Makefile warp_norm.cu
TRITONDIR := $(DESTDIR)$(PREFIX)/share/doc/driftscope/examples/triton
TRITON_FILES := README.md add_rows.py
# README, the pages and what they link to, in the same places, so that their links lead somewhere.
DOCDIR := $(DESTDIR)$(PREFIX)/share/doc/driftscope
DOC_FILES := README.md LICENSE dumps/partings.h $(sort $(wildcard docs/*.md $(ROOMS:%=%/*.md) tests/*.md tests/*/*.md))
SHIMDIR := $(INCDIR)/driftscope/kernels
SHIM_FILES := driftscope_kernel.h cuda/device.cuh cuda/kernels.cuh sim/cuda_host.h sim/sim.h sim/mma.h

.PHONY: install uninstall clean
install: all ## install under PREFIX (and DESTDIR): program, specimens, man page, pages, completions, kernel header, plugin examples
	$(BUILD)/driftscope help --man -o $(BUILD)/driftscope.1
	$(BUILD)/driftscope help --completion bash -o $(BUILD)/driftscope.bash
	$(BUILD)/driftscope help --completion zsh -o $(BUILD)/driftscope.zsh
	$(BUILD)/driftscope help --completion fish -o $(BUILD)/driftscope.fish
	$(INSTALL) -d "$(BINDIR)" "$(INCDIR)" "$(MANDIR)" "$(BASHDIR)" "$(ZSHDIR)" "$(FISHDIR)" "$(PLUGDIR)" "$(SPECDIR)" "$(DEVICEDIR)" "$(TRITONDIR)" "$(SHIMDIR)/cuda" "$(SHIMDIR)/sim"
	$(INSTALL) -m 755 $(BUILD)/driftscope "$(BINDIR)/driftscope"
	$(INSTALL) -m 644 kernels/driftscope_kernel.h "$(INCDIR)/driftscope_kernel.h"
	$(INSTALL) -m 644 $(PLUGIN_FILES:%=examples/plugin/%) "$(PLUGDIR)/"
	$(INSTALL) -m 644 $(DEVICE_FILES:%=examples/device/%) "$(DEVICEDIR)/"
	$(INSTALL) -m 644 $(TRITON_FILES:%=examples/triton/%) "$(TRITONDIR)/"
	for f in $(DOC_FILES); do $(INSTALL) -d "$(DOCDIR)/$$(dirname $$f)" && $(INSTALL) -m 644 $$f "$(DOCDIR)/$$f" || exit 1; done
	for f in $(SHIM_FILES); do $(INSTALL) -m 644 kernels/$$f "$(SHIMDIR)/$$f" || exit 1; done
	rm -f "$(SPECDIR)/"*.case
	$(INSTALL) -m 644 $(SPECIMEN_FILES) "$(SPECDIR)/"
	$(INSTALL) -m 644 $(BUILD)/driftscope.1 "$(MANDIR)/driftscope.1"
	$(INSTALL) -m 644 $(BUILD)/driftscope.bash "$(BASHDIR)/driftscope"
	$(INSTALL) -m 644 $(BUILD)/driftscope.zsh "$(ZSHDIR)/_driftscope"
	$(INSTALL) -m 644 $(BUILD)/driftscope.fish "$(FISHDIR)/driftscope.fish"
uninstall: ## remove what install put there
	rm -f "$(BINDIR)/driftscope" "$(INCDIR)/driftscope_kernel.h" "$(MANDIR)/driftscope.1" "$(BASHDIR)/driftscope" \
	    "$(ZSHDIR)/_driftscope" "$(FISHDIR)/driftscope.fish" $(foreach file,$(PLUGIN_FILES),"$(PLUGDIR)/$(file)") \
	    $(foreach file,$(TRITON_FILES),"$(TRITONDIR)/$(file)") $(foreach file,$(DEVICE_FILES),"$(DEVICEDIR)/$(file)") $(foreach file,$(SHIM_FILES),"$(SHIMDIR)/$(file)") \
	    $(foreach file,$(DOC_FILES),"$(DOCDIR)/$(file)") \
	    "$(SPECDIR)/specimens.so" "$(SPECDIR)/"*.case
clean: ## remove the build folders
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-lint

# ---- a folder for machines that have nothing --------------------------------------------------------------------------------
# The same objects, with every library but glibc linked in; what is opened at run time is looked for in ../lib, also by those libraries
# themselves (which a RUNPATH would not do).
DIST_LIBS := -Wl,-Bstatic -lhdf5_serial -lsz -laec -lz -lxxhash -lpcre2-8 -lncursesw -ltinfo -ljansson -Wl,-Bdynamic -ldl -lm
DIST_NAME  = driftscope-$$($(BUILD)/driftscope --version | awk '{ gsub("[()]", ""); print $$2 "-" $$3 }')-$$(uname -m)
$(BUILD)/dist/driftscope: $(LIBS) | $(BUILD)/numbers-checked
	@mkdir -p $(@D)
	$(CC) $(DS_LDFLAGS) -o $@ -Wl,--start-group $(LIBS) -Wl,--end-group $(DIST_LIBS) -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../lib' $(LDFLAGS)
.PHONY: dist
dist: all $(BUILD)/dist/driftscope ## a folder (and .tar.gz) that runs on machines with nothing but glibc
	@rm -rf "$(BUILD)/dist/staged"
	@$(SAME_MAKE) -s DESTDIR="$(abspath $(BUILD))/dist/staged" PREFIX= install
	@tests/tools/make_dist $(BUILD)/dist/driftscope "$(BUILD)/dist/staged" "$(BUILD)/dist/$(DIST_NAME)"
	@rm -rf "$(BUILD)/dist/staged"

# On a machine with a GPU; GPU_CHECK="--device sim" tries it without. The folder can be copied to one that has nothing else.
.PHONY: gpu-check
gpu-check: ## make the dist folder (with the CUDA library where nvcc is) and run its gpu-check: GPU_CHECK="--model FILE"
	@$(if $(NVCC),$(MAKE) --no-print-directory cuda,echo "gpu-check: no nvcc here: without libdriftscope_cuda.so" >&2)
	@$(MAKE) --no-print-directory dist
	@"$(BUILD)/dist/$(DIST_NAME)/gpu-check" $(GPU_CHECK)

.PHONY: help always
always:
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { split($$0, t, ":"); printf "  make %-14s %s\n", t[1], $$2 }' $(firstword $(MAKEFILE_LIST))
	@sed -n 's/^# Variables: /  variables: /p' $(firstword $(MAKEFILE_LIST))
