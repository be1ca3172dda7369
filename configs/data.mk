# What the configs train and validate on, made from ../shared/data: `make -f configs/data.mk -j2 rivals`
# (scratch, sat-rmml, paper-here, baselines), `release` (mixture, with its pictures), `two-cores` or
# `pieces`, which takes eight minutes of a core. What is there already is not made again. The
# synthesiser's files take half an hour (FORMULAS=60000, enough for a CPU: five minutes), a traced
# picture 0.03 to 0.1 s of a core: `release` has some 60,000 with TAKES=1. Needs TeX:
# texlive-latex-base, texlive-latex-recommended.
BIN ?= .venv/bin
DATA ?= ../shared/data
P ?= packed
WORKERS ?= 1
TAKES ?= 1
FORMULAS ?= 435000
PHOTOS ?= 12000

gryphone := $(BIN)/gryphone
pack := $(gryphone) data pack
python := $(BIN)/python -m
crohme := $(DATA)/crohme
offline := $(DATA)/offline
photos := $(offline)/offhme-1.tar $(offline)/offhme-2.tar
traced = $(pack) $(photos) --boxes $(offline)/offhme-boxes.jsonl.xz
sets = train artificial-cut artificial-latex valid-2013 valid-2023 test-2014
stores = $(foreach name,$(1),$(P)/$(name).parquet)

.DELETE_ON_ERROR:
.PHONY: rivals release pieces two-cores lone

rivals: $(call stores,$(sets) offhme valid-2023-scans) $(P)/glyphs.npz
release: rivals $(addprefix $(P)/,glyphs-letters.npz layouts-plain.npz layouts-lone.npz) \
  $(call stores,train-lone train-letters-pairs train-beginnings train-rows train-dirty offhme-dirty train-takes \
  offhme-takes synth-photo lone-2023 prefix-2023 rows scans-dirty letters-lone letters-pairs \
  hands-letters)

pieces: $(call stores,train artificial-cut artificial-latex offhme train-beginnings train-lone \
  train-letters-lone train-letters-pairs valid-2013 valid-2023 valid-2023-scans lone-2023 \
  prefix-2023 letters-lone letters-pairs)
two-cores: pieces $(addprefix $(P)/,glyphs-letters.npz layouts-plain.npz layouts-lone.npz) \
  $(call stores,train-takes train-dirty train-struck train-struck-takes train-rows)

# What `python -m gryphone.release.lone` learns from, beside letters and drawings, and is measured on.
lone: $(call stores,train offhme lone-2023 letters-lone prefix-2023)

$(P):
	mkdir -p $@
	cp $(crohme)/valid-*-unseen.txt $@

$(call stores,$(sets)): $(P)/%.parquet: | $(P)
	$(pack) $(crohme)/$*.tar.xz --out $@
$(P)/offhme.parquet: | $(P)
	$(traced) --workers $(WORKERS) --out $@
$(P)/valid-2023-scans.parquet: | $(P)
	$(pack) $(offline)/valid-2023-scans.tar --keep-broken --out $@

# Glyphs, layouts and tokenizer come together; the bank stands for all of them.
$(P)/glyphs.npz: $(call stores,train artificial-cut artificial-latex offhme)
	$(gryphone) synth build $(DATA) $(P) --count $(FORMULAS)
$(P)/glyphs-letters.npz: $(P)/glyphs.npz
	$(gryphone) synth letters $< $(DATA)/letters --out $@
$(P)/layouts-plain.npz: $(P)/glyphs.npz
	$(gryphone) synth grammar $(P) --out $@
$(P)/layouts-lone.npz: $(P)/glyphs.npz
	$(gryphone) synth pieces $(P)

# Pieces of real ink.
$(P)/train-lone.parquet: | $(P)
	$(pack) $(crohme)/train.tar.xz --pieces lone:60 --out $@
$(P)/train-beginnings.parquet: | $(P)
	$(pack) $(crohme)/train.tar.xz --pieces beginnings:4 --out $@
$(P)/train-rows.parquet: $(P)/train.parquet
	$(pack) $< --pieces rows:2000:40 --seed 1 --out $@
$(P)/train-struck.parquet: $(P)/train.parquet
	$(pack) $< --pieces struck:6000 --seed 2 --out $@
$(P)/lone-2023.parquet: | $(P)
	$(pack) $(crohme)/valid-2023.tar.xz --pieces lone:8 --out $@
$(P)/prefix-2023.parquet: | $(P)
	$(pack) $(crohme)/valid-2023.tar.xz --pieces beginnings:1 --out $@
$(P)/rows.parquet: | $(P)
	$(pack) $(crohme)/valid-2023.tar.xz --pieces rows:200:50 --out $@

# Pictures: clean ones, and most of the others under dirt or a condition.
$(P)/train-takes.parquet: $(P)/train.parquet
	$(pack) $< --photograph 100 --takes $(TAKES) --workers $(WORKERS) --out $@
$(P)/train-struck-takes.parquet: $(P)/train-struck.parquet
	$(pack) $< --photograph 300 --workers $(WORKERS) --out $@
$(P)/offhme-takes.parquet: | $(P)
	$(traced) --retake 1 --takes $(TAKES) --workers $(WORKERS) --out $@
$(P)/train-dirty.parquet: $(P)/train.parquet
	$(pack) $< --photograph 700 --takes $(TAKES) --conditions 0.7 --workers $(WORKERS) --out $@
$(P)/offhme-dirty.parquet: | $(P)
	$(traced) --retake 800 --takes $(TAKES) --conditions 0.7 --workers $(WORKERS) --out $@
$(P)/scans-dirty.parquet: | $(P)
	$(pack) $(offline)/valid-2023-scans.tar --retake 900 --conditions 1 --keep-broken --out $@
$(P)/synth-photo.parquet: $(P)/glyphs-letters.npz
	$(gryphone) synth photos $(P) --glyphs $< --count $(PHOTOS) --seed 61 --conditions 0.5 \
	  --struck 0.35 --workers $(WORKERS) --out $@

# Letters of other people, one by one and in pairs.
$(P)/train-letters-lone.parquet $(P)/train-letters-pairs.parquet: $(P)/train-letters-%.parquet: | $(P)
	$(python) gryphone.studies.letters $* $(DATA)/letters $@ --training --count 24000 --seed 1

# People who are in no training set.
$(P)/letters-lone.parquet $(P)/letters-pairs.parquet: $(P)/letters-%.parquet: | $(P)
	$(python) gryphone.studies.letters $* $(DATA)/letters $@
$(P)/hands-letters.parquet: $(P)/glyphs.npz
	$(python) gryphone.studies.hands $(P) $@ --count 400 --letters $(DATA)/letters
