# The console: its files and two libraries from npm, laid out as they are
# served.  What is downloaded is kept beside other downloads and must have the
# SHA-512 of console/vendor.sha512; nothing of it is committed.

CONSOLE_TGZ = $(BUILD)/src/console
CONSOLE_OWN = $(wildcard console/*.html console/*.js console/*.css) \
              $(wildcard conf/openapi.json)

# FILE  TGZ  PATH, below vendor/, in vendor.sha512, and below package/

define CONSOLE_VENDOR
standalone.module.js  htm     preact/standalone.module.js
htm.module.js         htm     dist/htm.module.js
htm.LICENSE           htm     LICENSE
preact.LICENSE        preact  LICENSE
uPlot.iife.min.js     uplot   dist/uPlot.iife.min.js
uPlot.min.css         uplot   dist/uPlot.min.css
uPlot.LICENSE         uplot   LICENSE
endef
export CONSOLE_VENDOR

console: $(CONSOLE)/.complete

# the names of files that were removed must not be served on

$(CONSOLE)/.complete: $(CONSOLE_OWN) $(CONSOLE_TGZ)/.complete console/console.mk
	@echo "lay out $(CONSOLE)"
	@rm -rf $(CONSOLE) && mkdir -p $(CONSOLE)/vendor
	@cp $(CONSOLE_OWN) $(CONSOLE)
	@set -e; echo "$$CONSOLE_VENDOR" | while read file name path; do \
	    tar -xzOf $(CONSOLE_TGZ)/$$name-[0-9]*.tgz package/$$path \
	        > $(CONSOLE)/vendor/$$file; \
	done
	@touch $@

# what is there and verifies is not fetched again, what does not is not kept

$(CONSOLE_TGZ)/.complete: console/vendor.sha512
	@command -v npm >/dev/null || { \
	    echo "the console needs npm (apt-get install npm)," \
	         "to fetch what console/vendor.sha512 lists"; exit 1; }
	@mkdir -p $(@D); cd $(@D) \
	&& { sha512sum --status -c $(abspath $<) 2>/dev/null || { \
	        echo "fetch the libraries of the console"; rm -f *.tgz; \
	        sed -n 's/^[0-9a-f]*  \(.*\)-\([0-9.]*\)\.tgz$$/\1@\2/p' \
	            $(abspath $<) | xargs npm pack --silent > npm.log 2>&1 \
	        || { cat npm.log; exit 1; }; \
	    }; }
	@cd $(@D) && sha512sum --quiet -c $(abspath $<) \
	    || { rm -f *.tgz; exit 1; }
	@touch $@
