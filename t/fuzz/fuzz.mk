# libFuzzer on floor 0: every t/fuzz/fuzz_*.c for FUZZ_SECONDS, starting with
# its earlier corpus and with the vectors.

FUZZ_SECONDS = 30
FUZZERS     = $(patsubst t/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard t/fuzz/fuzz_*.c))

# the short form of "make fuzz", for "make test"

fuzz-quick:
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=10

fuzz: setup-fuzz
	@$(MAKE) --no-print-directory -j$(JOBS) $(FUZZERS)
	@$(PYTHON) t/fuzz/seeds.py $(BUILD)/fuzz
	@printf '%s\n' $(FUZZERS) | xargs -P $(JOBS) -I{} sh -c ' \
	    mkdir -p {}.corpus && {} -max_total_time=$(FUZZ_SECONDS) \
	        -dict=$(BUILD)/fuzz/codec.dict -print_final_stats=1 \
	        -artifact_prefix=$(BUILD)/fuzz/ {}.corpus > {}.log 2>&1; \
	    rc=$$?; echo "== {}"; tail -n 7 {}.log; \
	    [ $$rc = 0 ] || { tail -n 60 {}.log; exit 255; }'

FUZZ_CC     = clang -g -O1 -fsanitize=fuzzer-no-link,address,undefined \
              -DNGX_DEBUG_PALLOC=1 $(INCLUDES)
FUZZ_OBJS   = $(FLOOR0:%=$(BUILD)/fuzz/obj/%.o) \
              $(CORE:%=$(BUILD)/fuzz/obj/nginx/%.o)

$(BUILD)/fuzz/%: t/fuzz/%.c $(FUZZ_OBJS) $(wildcard t/fuzz/*.h) $(HEADERS)
	@mkdir -p $(@D); echo "clang $<"
	@$(FUZZ_CC) -fsanitize=fuzzer -o $@ $< $(FUZZ_OBJS) $(UNIT_LIBS)

$(BUILD)/fuzz/obj/nginx/%.o: | $(CORE_SRC)/.complete $(NGINX_OBJS)/objs/Makefile
	@mkdir -p $(@D)
	@$(FUZZ_CC) -c -o $@ $(CORE_SRC)/src/$*.c

$(BUILD)/fuzz/obj/%.o: src/%.c $(HEADERS)
	@mkdir -p $(@D)
	@$(FUZZ_CC) -c -o $@ $<

.PRECIOUS: $(BUILD)/fuzz/obj/%.o $(BUILD)/fuzz/obj/nginx/%.o
