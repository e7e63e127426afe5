# Unit tests of floor 0: t/unit/ROOM/test_*.c, each a program with all of
# floor 0 and the nginx core that strings and pools need.  nginx-dev
# has headers only, so the .c files come from the sources of the same release:
# they and the configured headers in $(NGINX_OBJS) belong together.

SERIES      = $(shell sed -n 's/^\#define NGINX_VERSION *"\([0-9]*\.[0-9]*\).*/\1/p' \
                $(NGINX_SRC)/src/core/nginx.h 2>/dev/null)
CORE_SRC    = $(BUILD)/src/nginx-$(SERIES)

CORE        = core/ngx_palloc core/ngx_string core/ngx_array core/ngx_list \
              core/ngx_buf core/ngx_hash core/ngx_rbtree core/ngx_crc32 \
              core/ngx_murmurhash core/ngx_slab core/ngx_sha1 core/ngx_parse \
              os/unix/ngx_alloc

INCLUDES    = $(ROOMS:%=-Isrc/%) -It/unit $(ROOMS:%=-It/unit/%) -I$(NGINX_OBJS)/objs \
              -I$(CORE_SRC)/src/core -I$(CORE_SRC)/src/event \
              -I$(CORE_SRC)/src/event/modules \
              -I$(CORE_SRC)/src/event/quic -I$(CORE_SRC)/src/os/unix \
              -I/usr/include/postgresql
WARNINGS    = -W -Wall -Wextra -Wpointer-arith -Wno-unused-parameter -Werror
ASAN        = -g -O1 -fsanitize=address -fno-omit-frame-pointer \
              -DNGX_DEBUG_PALLOC=1

# UBSan for our own code only: nginx's ngx_string.c trips it

UBSAN       = -fsanitize=undefined -fno-sanitize-recover=undefined

FLOOR0      = $(patsubst src/%.c,%,$(wildcard $(ROOMS:%=src/%/*.c)))
UNIT        = $(BUILD)/unit
UNIT_LIBS   = -lcmocka -lyajl -lcrypto -lsqlite3 -lpthread
UNIT_OBJS   = $(FLOOR0:%=$(UNIT)/%.o) $(CORE:%=$(UNIT)/nginx/%.o)
UNIT_TESTS  = $(patsubst t/unit/%.c,$(UNIT)/%,$(wildcard t/unit/*/test_*.c))
HEADERS     = $(wildcard $(ROOMS:%=src/%/*.h) t/unit/*.h t/unit/*/*.h) \
              | $(NGINX_OBJS)/objs/Makefile $(CORE_SRC)/.complete

unit: setup-unit
	@$(MAKE) --no-print-directory -j$(JOBS) unit-build
	@for t in $(UNIT_TESTS); do \
	    echo "== $$t"; $$t || failed="$$failed $$t"; \
	done; \
	[ -z "$$failed" ] || { echo "unit tests failed:$$failed"; exit 1; }

unit-build: $(UNIT_TESTS)

$(CORE_SRC)/.complete:
	BUILD=$(BUILD) t/tools/nginx-src.sh $(SERIES)

$(UNIT)/nginx/%.o: | $(CORE_SRC)/.complete $(NGINX_OBJS)/objs/Makefile
	@mkdir -p $(@D); echo "cc $*.c"
	@$(CC) $(ASAN) -W -Wall $(INCLUDES) -c -o $@ $(CORE_SRC)/src/$*.c

$(UNIT)/%.o: src/%.c $(HEADERS)
	@mkdir -p $(@D); echo "cc $<"
	@$(CC) $(ASAN) $(UBSAN) $(WARNINGS) $(INCLUDES) -c -o $@ $<

$(UNIT)/%: t/unit/%.c $(UNIT_OBJS) $(HEADERS)
	@mkdir -p $(@D); echo "cc $<"
	@$(CC) $(ASAN) $(UBSAN) $(WARNINGS) $(INCLUDES) -o $@ $< $(UNIT_OBJS) \
	    $(UNIT_LIBS)

# those where allocations fail

WRAPPED     = ngx_alloc ngx_memalign ngx_modelgw_out ngx_modelgw_out_borrowed \
              ngx_modelgw_out_escaped

$(patsubst t/unit/%.c,$(UNIT)/%,$(shell grep -l unit_memory.h t/unit/*/*.c)): \
    UNIT_LIBS += $(WRAPPED:%=-Xlinker --wrap=%)

.PRECIOUS: $(UNIT)/%.o $(UNIT)/nginx/%.o
