# The cost of a call compared to plain proxy_pass: in time (gateway.py), in
# instructions, which are the same on a busy machine (instructions.py), and
# with many keys and streams (growth.py).  What is measured is in
# t/bench/cases.py; rows of the first are in $(BUILD)/bench.json, too.

BENCH_ARGS  =

BENCH_ENV   = MODELGW_NGINX=$(NGINX) MODELGW_MODULE=$(abspath $(MODULE)) \
              MODELGW_BENCH=$(abspath $(BUILD))/bench
BENCH_PROGS = $(BUILD)/bench/upstream $(BUILD)/bench/stage.so
BENCH_HTTP  = $(addprefix -I$(NGINX_OBJS)/src/,core event event/modules \
                event/quic os/unix http http/modules http/v2 http/v3)

bench bench-quick: setup-bench module
	@$(MAKE) --no-print-directory $(BENCH_PROGS)
	@$(BENCH_ENV) $(PYTHON) t/bench/gateway.py --out $(BUILD)/bench.json \
	    $(if $(filter bench-quick,$@),--quick) $(BENCH_ARGS)

bench-instructions: setup-bench module
	@$(MAKE) --no-print-directory $(BENCH_PROGS)
	@$(BENCH_ENV) $(PYTHON) t/bench/instructions.py \
	    --out $(BUILD)/instructions.txt $(BENCH_ARGS)

bench-growth: setup-bench setup-unit module
	@$(MAKE) --no-print-directory $(BENCH_PROGS) $(BUILD)/bench/scan
	@$(BENCH_ENV) $(PYTHON) t/bench/growth.py --out $(BUILD)/growth.json \
	    $(BENCH_ARGS)
	@$(BUILD)/bench/scan | sed -n '/32 MB/,$$p'

$(BUILD)/bench/upstream: t/bench/upstream.c
	@mkdir -p $(@D); echo "cc $<"
	@$(CC) -g -O2 $(WARNINGS) -o $@ $<

# a module that reads the state of ours

$(BUILD)/bench/stage.so: t/bench/stage.c $(filter %.h,$(SOURCES)) \
        | $(NGINX_OBJS)/objs/Makefile
	@mkdir -p $(@D); echo "cc $<"
	@$(CC) -g -O2 -fPIC -shared $(WARNINGS) \
	    $(addprefix -I,$(sort $(dir $(SOURCES)))) -I$(NGINX_OBJS)/objs \
	    $(BENCH_HTTP) -o $@ $<


# The same sources without sanitizers, for numbers.

bench-scan bench-ledger: bench-%: $(BUILD)/bench/%
	$<

bench-store: $(BUILD)/bench/store
	$< $(BUILD)/bench

bench-questions: setup-run module
	@mkdir -p $(BUILD)/bench
	@$(BENCH_ENV) $(PYTHON) t/bench/questions.py $(BUILD)/bench $(BENCH_ARGS)

$(BUILD)/bench/scan $(BUILD)/bench/ledger $(BUILD)/bench/store: \
        $(BUILD)/bench/%: t/bench/%.c \
        $(FLOOR0:%=src/%.c) $(HEADERS)
	@mkdir -p $(@D); echo "cc $<"
	@$(CC) -g -O2 $(WARNINGS) $(INCLUDES) -o $@ $< $(FLOOR0:%=src/%.c) \
	    $(CORE:%=$(CORE_SRC)/src/%.c) $(UNIT_LIBS)
