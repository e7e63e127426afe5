# nginx built from the sources of a series, for the matrix; "asan" is one of
# them with AddressSanitizer in nginx and module alike.  The latter is linked
# in statically: leaks in an unloaded .so have no symbols.  NGX_DEBUG_PALLOC
# makes each allocation from a pool a separate block, without which ASan does
# not detect an overflow inside a pool.

NGINX_WITH  = --with-compat --with-debug --with-threads --with-pcre-jit \
              --with-http_ssl_module --with-http_v2_module \
              --with-http_realip_module --with-http_auth_request_module \
              --with-http_stub_status_module --with-http_gunzip_module \
              --with-http_sub_module --with-http_addition_module \
              --prefix=/usr/share/nginx --error-log-path=stderr

MATRIX      = 1.26 1.30
ASAN_SERIES = 1.26
SUPPRESS    = -DNGX_SUPPRESS_WARN=1

$(BUILD)/nginx-%/nginx:
	BUILD=$(BUILD) t/tools/nginx-src.sh $*
	$(call configure,$(BUILD)/src/nginx-$*,$(NGINX_WITH) --with-cc-opt='-O1 -g')
	@echo "compile $(@D)"
	@$(MAKE) -s -C $(@D) -f objs/Makefile -j$(JOBS) binary
	mv $(@D)/objs/nginx $@

$(BUILD)/asan/objs/Makefile: config Makefile t/tools/nginx.mk $(BUILD)/sources
	BUILD=$(BUILD) t/tools/nginx-src.sh $(ASAN_SERIES)
	$(call configure,$(BUILD)/src/nginx-$(ASAN_SERIES),$(NGINX_WITH) --add-module=$(CURDIR) \
	    --with-cc-opt='$(ASAN) $(SUPPRESS)' \
	    --with-ld-opt='-fsanitize=address')

$(BUILD)/asan/nginx: $(BUILD)/asan/objs/Makefile $(SOURCES)
	@echo "compile $(@D)"
	@$(MAKE) -s -C $(@D) -f objs/Makefile -j$(JOBS) binary
	cp $(@D)/objs/nginx $@
