# driftscope: one Makefile. `make help` lists the targets; variables: BUILD PREFIX CC WERROR=1 SAN=1.

BUILD  ?= build
PREFIX ?= /usr/local
ifeq ($(origin CC),default)
CC := gcc
endif

# ---- flags: the rules of numbers (no contraction, no reassociation) hold for every object ---------------------------------
HDF5_CFLAGS := $(shell pkg-config --cflags hdf5-serial 2>/dev/null)
HDF5_LIBS   := $(shell pkg-config --libs hdf5-serial 2>/dev/null)
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wdouble-promotion -Wvla -Wmissing-prototypes $(if $(WERROR),-Werror)
NUMBERS := -O2 -ffp-contract=off
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
SANFLAGS := $(if $(SAN),$(SANITIZE))
DS_CFLAGS  := -std=c11 -g $(NUMBERS) $(WARN) -I. -MMD -MP -fPIC -pthread $(SANFLAGS)
DS_LDFLAGS := -pthread $(SANFLAGS)

# ---- what is built --------------------------------------------------------------------------------------------------------
ROOMS := base kernels probes dumps engine cli
src    = $(wildcard $(1)/*.c) $(if $(filter kernels,$(1)),$(wildcard kernels/cpu/*.c))
obj    = $(patsubst %.c,$(BUILD)/%.o,$(call src,$(1)))
LIBS   := $(ROOMS:%=$(BUILD)/lib%.a)

# Dependencies point one way; each room links what stands below it.
BELOW_base    :=
BELOW_kernels := base
BELOW_dumps   := base
BELOW_probes  := dumps base
BELOW_engine  := probes kernels dumps base
BELOW_cli     := engine probes kernels dumps base
EXT_base      := -lm
EXT_kernels   := -ldl -lm
EXT_dumps     := $(HDF5_LIBS) -lxxhash -lm
EXT_probes    := $(EXT_dumps)
EXT_engine    := $(HDF5_LIBS) -lxxhash -lpcre2-8 -ldl -lm
EXT_cli       := $(EXT_engine) -ljansson

.PHONY: all
all: $(BUILD)/driftscope

$(BUILD)/driftscope: $(LIBS)
	$(CC) $(DS_LDFLAGS) -o $@ -Wl,--start-group $(LIBS) -Wl,--end-group $(EXT_cli) $(LDFLAGS)

define room_rules
$(BUILD)/lib$(1).a: $$(call obj,$(1))
	@rm -f $$@
	$(AR) rcs $$@ $$^
# Unit tests: tests/unit/ROOM/test_X.c -> build/tests/unit/ROOM/test_X, linked with the room and those below.
$(BUILD)/tests/unit/$(1)/%: tests/unit/$(1)/%.c $(BUILD)/lib$(1).a $(BELOW_$(1):%=$(BUILD)/lib%.a)
	@mkdir -p $$(@D)
	$(CC) $$(DS_CFLAGS) $$(CFLAGS_$(1)) $$(CFLAGS) -MF $$@.d -o $$@ $$< $(BUILD)/lib$(1).a \
	    $(BELOW_$(1):%=$(BUILD)/lib%.a) $$(EXT_$(1)) -lcmocka $$(LDFLAGS)
endef
$(foreach room,$(ROOMS),$(eval $(call room_rules,$(room))))

CFLAGS_dumps := $(HDF5_CFLAGS)

# Code for one instruction set lives in a file of its own, named after it; it is reached only after a CPU check.
%_avx2.o:   ISA := -mavx2 -mfma
%_avx512.o: ISA := -mavx512f -mavx512vl -mavx512bw -mavx512dq -mfma -mprefer-vector-width=512
$(BUILD)/dumps/%.o: ROOM_CFLAGS := $(HDF5_CFLAGS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(DS_CFLAGS) $(ROOM_CFLAGS) $(CFLAGS) $(ISA) -c -o $@ $<

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

UNIT_TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/*/test_*.c))
.PHONY: unit clean
unit: $(UNIT_TESTS)

clean:
	rm -rf $(BUILD)
