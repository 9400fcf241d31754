.PHONY: venv
venv:
	@test -x .venv/bin/python || python3 -m venv .venv
	@.venv/bin/pip install --quiet --require-hashes -r requirements.txt -r requirements/dev.txt
	@printf '%s\n' "$(CURDIR)/platform" "$(CURDIR)" > $$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/bursar.pth
