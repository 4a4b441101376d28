#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every rule of docs/rules.md refuses a spec in the words that stand there, and finds nothing else wrong with it. A case
# is a change of rules.ini, which is a good spec; its message is read from the document.
. "$ST_SRCDIR/tests/cli/cli.sh"
document=$ST_SRCDIR/docs/rules.md
golden=$ST_SRCDIR/tests/golden

cp "$ST_SRCDIR/tests/cli/rules.ini" "$scratch/good.ini"
cp "$ST_SRCDIR/specs/receipts-tiny/tokenizer.json" "$scratch/tokenizer.json"
cd "$scratch" || exit 99
: > cases

# Rows of the document: | `ID` | rule | why | `message` | test |, where a bar inside a message is written \|.
sed -n 's/^| `\([a-z0-9-]*\)` |.*/\1/p' "$document" > rows
message() { # ID
    sed -n "s/^| \`$1\` |.* | \`\(.*\)\` | [^|]* |\$/\1/p" "$document" | sed 's/\\|/|/g'
}

# told ID COMMAND...: on the CPU it fails with that message and no other, and makes no folder
told() {
    want=$(message "$1")
    shift
    [ -n "$want" ] || { echo 'the document has no message'; return 1; }
    "$@" --set run.backend=cpu > told.all 2>&1 && { echo 'not refused'; return 1; }
    sed "s|$scratch/||g" told.all > told.out
    cat told.out
    grep -qxF -- "$want" told.out || { echo "not said: $want"; return 1; }
    [ "$(grep -c 'error: ' told.out)" = 1 ] || { echo 'more than one mistake'; return 1; }
    [ ! -e runs ] || { echo 'a folder was made'; return 1; }
}

# rule ID SED [COMMAND...]: good.ini changed by SED is refused; COMMAND is `strata check spec.ini` unless given
rule() {
    id=$1
    echo "$id" >> cases
    sed "$2" good.ini > spec.ini
    shift 2
    [ $# -gt 0 ] || set -- "$strata" check spec.ini
    must "$id" told "$id" "$@"
}

must 'the spec that every case changes can train' exits 0 'good.ini can train' "$strata" check good.ini

# ---- pattern ----
rule pattern-missing '/^pattern = G/d'
rule pattern-symbol 's/G-\*E/G-Q*E/'
rule pattern-no-layers 's/^pattern = G.*/pattern =/; /^\[layer.[GE*-]\]/,/^\[/{//!d}; /^\[layer.[GE*-]\]/d'
rule pattern-no-trunk 's/G-\*E\/\*-/\/*-/'
rule pattern-pipe 's/G-\*E/G-|*E/'
rule pattern-group 's/G-\*E/(G-*E/'
rule pattern-count 's/G-\*E/(G-*E)x0/'
rule blocks-zero 's/^pattern = G.*/blocks = 0/'
rule blocks-no-copy 's/^pattern = G.*/blocks = 0\nmtp_depths = 1/'
rule blocks-pattern 's/^pattern = G.*/&\nblocks = 4/'
rule blocks-symbol 's/^pattern = G.*/blocks = 2\nmlp = -E/'
rule depths-pattern 's/^pattern = G.*/&\nmtp_depths = 2/'
rule depth-empty 's/G-\*E\/\*-/&\//'
rule symbol-unused 's/G-\*E/G-*-/'
rule symbol-name 's/^\[position\]/[layer.GG]\nplugin = moe\n&/'
rule stale-num-layers 's/^pattern = G.*/&\nnum_layers = 4/'
rule stale-attention-freq 's/^pattern = G.*/&\nlinear_attention_freq = 4/'
rule stale-moe-freq 's/^pattern = G.*/&\nmoe_layer_freq = 1/'
rule stale-mtp 's/^pattern = G.*/&\nmtp_num_layers = 1/'

# ---- layers ----
rule attention-heads '/^head_dim = 8/d; s/^heads = 4/heads = 5/; /^kv_heads/d'
rule attention-groups 's/^kv_heads = 2/kv_heads = 3/'
rule gdn-heads 's/^value_heads = 4/value_heads = 3/'
rule gdn-dt 's/^value_dim = 4/&\ndt_min = 0.2/'
rule moe-top-k 's/^top_k = 2/top_k = 9/'
rule moe-rows 's/^top_k = 2/top_k = 8/; s/^tokens = 192/tokens = 268435456/'

# ---- positions ----
rule rotary-pairs 's/^rotary_percent = 1/rotary_percent = 0.3/'
rule mrope-count 's/^section = .*/section = 2,2/'
rule mrope-sum 's/^section = .*/section = 2,2,1/'
rule mrope-split 's/^section = .*/section = 1,3,0/'
family='s/^vocab/family = qwen3.5\n&/;'
public='s/^head_dim = 8/head_dim = 256/; s/^rotary_percent = 1/rotary_percent = 0.25/; s/^section = .*/section = 12,10,10/;'
none="$public /^section/d; /^rotary_percent/d;"
rule family-split "$family $public"
rule family-interleaved "$family s/^section = .*/&\ninterleaved = no/"
rule family-none "$family $none s/^plugin = mrope/plugin = none/"
rule family-rope "$family /^section/d; s/^plugin = mrope/plugin = rope/"
rule family-no-position "$family $none /^\[position\]/d; /^plugin = mrope/d"
rule family-depth "$family s/G-\*E\/\*-/G-*E\/G-/"
rule depth-position '/^section/d; /^rotary_percent/d; s/^plugin = mrope/plugin = learned_absolute\nmax_positions = 192/'
rule depth-none 's/G-\*E\/\*-/G-*E/; s/^\[encoder\]/[head.mtp]\n&/'
rule depth-two-heads 's/^\[encoder\]/[head.mtp]\n[head.other]\nplugin = mtp\n&/'
rule depth-repeated 's/G-\*E\/\*-/&\/-/; s/^\[encoder\]/[head.mtp]\nrepeated = yes\n&/'

# ---- encoder ----
rule patches-merge 's/^patches = 64/patches = 62/'
rule encoder-capacity '/^patches/d'
rule images-no-encoder '/^\[encoder\]/,/^\[batch\]/{/^\[batch\]/!d}; s/^images = 1/images = 0/'
rule encoder-mean 's/^position_side.*/&\nimage_mean = 0.5/'
rule encoder-std-count 's/^position_side.*/&\nimage_std = 0.5/'
rule encoder-std 's/^position_side.*/&\nimage_std = 0.5,0,0.5/'
rule encoder-pixels 's/^min_pixels = .*/min_pixels = 8192/'
rule encoder-smallest 's/^min_pixels = .*/min_pixels = 512/; s/^max_pixels = .*/max_pixels = 1000/'
rule encoder-heads 's/^heads = 2/&\nhead_dim = 6/'
rule encoder-depth 's/^pattern = VF/&\/F/'

# ---- ranks ----
rule parallel-tensor 's/^\[tokenizer\]/[parallel]\ntensor = 2\n&/'
rule parallel-context 's/^\[tokenizer\]/[parallel]\ncontext = 2\n&/'
rule parallel-expert 's/^\[tokenizer\]/[parallel]\nexpert = 2\n&/'
rule expert-divide 's/^\[tokenizer\]/[parallel]\nexpert = 3\n&/'
rule expert-none 's/G-\*E/G-*-/; /^\[layer.E\]/,/^width/d; s/^\[tokenizer\]/[parallel]\nexpert = 2\n&/'
ranks() { rule "$1" "$2; s/^tokens = 192/&\\nrows = 6/" "$strata" plan spec.ini --ranks "$3"; } # ID SED RANKS
ranks ranks-axes 's/^\[tokenizer\]/[parallel]\ntensor = 2\n&/' 3
ranks ranks-expert 's/^\[tokenizer\]/[parallel]\nexpert = 2\n&/' 3
ranks ranks-rows 's/^nothing//' 4
ranks made-for-tensor 's/^\[tokenizer\]/[parallel]\ntensor = 2\n&/' 2
ranks made-for-context 's/^\[tokenizer\]/[parallel]\ncontext = 2\n&/' 2
ranks made-for-expert 's/^\[tokenizer\]/[parallel]\nexpert = 2\n&/' 2
rule zero-matrices 's/^\[tokenizer\]/[parallel]\nzero = 2\n&/; s/^plugin = adamw/plugin = muon/'
rule pipeline 's/^\[tokenizer\]/[parallel]\npipeline = 2\n&/'

# ---- text ----
rule tokenizer-vocab 's/^vocab = 352/vocab = 300/'
rule tokenizer-image 's/^position_side.*/&\nimage_token = <nothing>/'
rule tokenizer-chat 's/^prompt = .*/&\nuser_end = <|nothing|>/'

# ---- rows, memory, training ----
rule row-length 's/^tokens = 192/&\nmax_len = 193/'
rule precision 's/^steps = 4/&\nprecision = bf16/'
rule recompute-symbol 's/^\[tokenizer\]/[recompute]\nfull = Q\n&/'
rule recompute-slot 's/^\[tokenizer\]/[recompute]\ndrop = G.nothing\n&/'
rule recompute-kept 's/^\[tokenizer\]/[recompute]\ndrop = -.gate_up\n&/'
rule recompute-drop 's/^\[tokenizer\]/[recompute]\ndrop = Q.conv\n&/'
rule part-unknown 's/^\[tokenizer\]/[part.speech]\nfreeze = yes\n&/'
rule part-blocks 's/^\[tokenizer\]/[part.language]\nlast_blocks = 9\n&/'
rule part-no-blocks 's/^\[tokenizer\]/[part.merger]\nlast_blocks = 1\n&/'
rule part-all-frozen 's/^\[tokenizer\]/[part.language]\nfreeze = yes\n[part.vision]\nfreeze = yes\n[part.merger]\nfreeze = yes\n&/'
rule decay-list 's/^plugin = adamw/&\ndecay = nothing/'
rule init-rule 's/^\[tokenizer\]/[init.rules]\nnothing = 0.1\n&/'
rule init-norm 's/^\[tokenizer\]/[init.rules]\npre_norm = 0.1\n&/'
rule init-std 's/^\[tokenizer\]/[init]\nrule = fan_in\nstd = 0.1\n&/'
rule adamw-beta1 's/^plugin = adamw/&\nbeta1 = 1/'
rule adamw-beta2 's/^plugin = adamw/&\nbeta2 = 1/'
rule adamw-moments 's/^plugin = adamw/&\nmoments = bf16/'
rule adamw-masters 's/^plugin = adamw/&\nmasters = none/'
rule muon-momentum 's/^plugin = adamw/plugin = muon\nmomentum = 1/'
rule muon-coefficients 's/^plugin = adamw/plugin = muon\ncoefficients = 1,2/'
rule schedule-decay 's/^lr = 1e-3/&\nkind = wsd\nwarmup = 2\ndecay = 3/'

# ---- keys ----
rule key-unknown 's/^vocab/hiden = 16\n&/'
rule key-missing '/^vocab/d'
rule key-twice 's/^vocab = 352/&\nvocab = 351/'
rule key-value 's/^vocab = 352/vocab = many/'
rule key-range 's/^experts = 8/experts = 0/'
rule section-unknown 's/^\[tokenizer\]/[optimiser]\nbeta1 = 0.9\n&/'
rule data-missing '/^\[dataset.train\]/,/^samples/d'

# ---- plugins: what is absent is told when it is asked for, and hurts nobody else ----
rule plugin-unknown 's/^plugin = adamw/plugin = lion/'
rule plugin-kind 's/^plugin = adamw/plugin = rope/'
mkdir absent
printf '[manifest]\nformat = 1\n[plugin]\nname = wire\nkind = comm\nmodule = wire\nabi = 1\nversion = 0.1\n' > absent/wire.ini
printf '[manifest]\nformat = 1\n[plugin]\nname = other\nkind = layer\nsymbol = E\nmodule = moe\nabi = 1\nversion = 0.1\n' \
    > other.ini
must 'a plugin without its module is listed' exits 0 'wire' "$strata" plugins --plugin-path "$scratch/absent"
must 'and hurts no spec that does not ask for it' exits 0 'can train' "$strata" check good.ini \
    --plugin-path "$scratch/absent"
rule comm-absent 's/^\[tokenizer\]/[parallel]\nplugin = wire\n&/' "$strata" check spec.ini --plugin-path absent
mkdir kernels && sed '/^\[backend/,$d' "$ST_SRCDIR/registry/35-moe.ini" > kernels/moe.ini &&
    printf '[backend.cpu]\nmodule = moe-gone\n' >> kernels/moe.ini
must 'kernels that are absent leave what needs none' exits 0 'can train' "$strata" check good.ini \
    --plugin-path "$scratch/kernels"
rule kernels-absent '' "$strata" train spec.ini --plugin-path kernels
mkdir twice && mv other.ini twice/
rule symbol-claims '' "$strata" check spec.ini --plugin-path twice

# ---- weights ----
for name in vl tied; do
    mkdir "$name"
    cp "$golden/dense-$name/config.json" "$name/"
    cp "$golden/dense-$name/weights.safetensors" "$name/model.safetensors"
    "$strata" spec from-hf "$name" > "$name.ini"
done
printf '[run]\nsteps = 1\n[batch]\ntokens = 64\nimages = 1\npatches = 16\n[dataset.train]\nplugin = mock\n[schedule]\nlr = 1\nwarmup = 0\n' > rest
{ echo 'include = vl.ini'; cat rest; } > good.ini
train() { "$strata" train spec.ini "$@"; }
rule weights-head '' train --set checkpoint.from_hf=vl --set stack.tie_embeddings=yes
{ echo 'include = tied.ini'; cat rest; } > good.ini
rule weights-no-head '' train --set checkpoint.from_hf=tied --set stack.tie_embeddings=no
must 'a check compares published weights as well' exits 1 'error: tied: no tensor lm_head.weight, needed for weight lm_head' \
    "$strata" check good.ini --set checkpoint.from_hf=tied --set stack.tie_embeddings=no
must 'and takes those that fit' exits 0 'can train' "$strata" check good.ini --set checkpoint.from_hf=tied
rule weights-other '' train --set checkpoint.from_hf=tied --set 'stack.pattern=G-G-G-*-'
rule weights-depth '' train --set checkpoint.from_hf=tied --set 'stack.pattern=G-G-G-*-G-G-G-*-/*-'
rule weights-twice '' train --set checkpoint.from_hf=tied --set checkpoint.from=tied

# ---- the document and the cases are of the same rules ----
must 'no rule stands there twice' test -z "$(sort rows | uniq -d)"
must 'no case is run twice' test -z "$(sort cases | uniq -d)"
sort rows > rows.sorted
sort cases > cases.sorted
must 'every rule has its case and every case its rule' cmp rows.sorted cases.sorted
must 'there are rules' test -s rows

# ---- all mistakes of a spec are told together ----
cp "$ST_SRCDIR/tests/cli/rules.ini" good.ini
sed 's/^kv_heads = 2/kv_heads = 3/; s/^value_heads = 4/value_heads = 3/; s/^top_k = 2/top_k = 9/; s/^section = .*/section = 2,2/
s/^patches = 64/patches = 62/; s/^plugin = adamw/&\nbeta1 = 1/; s/^lr = .*/lr = fast/; s/^vocab = .*/vocab = 300/
s/^\[tokenizer\]/[parallel]\npipeline = 2\n&/; s/^hidden = 16/num_layers = 4\n&/' good.ini > many.ini
together() { # FILE NUMBER: so many mistakes are found at once, and no folder is made
    "$strata" train "$1" > told.out 2>&1 && return 1
    cat told.out
    [ "$(grep -c 'error: ' told.out)" = "$2" ] && [ ! -e runs ]
}
must 'a spec with many mistakes is told all of them' together many.ini 10
sed 's/^pattern = G/&Q/' many.ini > worse.ini
must 'and most when its pattern is wrong too' together worse.ini 5
tap_done
