#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/from-megatron.md: it has every variable of the launcher, and the keys it names exist.
. "$ST_SRCDIR/tests/build/tap.sh"

page=$ST_SRCDIR/docs/from-megatron.md
variables='DRY_RUN GPUS_PER_NODE NNODES SLURM_JOB_NUM_NODES MASTER_ADDR MASTER_PORT LAUNCHER MODEL_VARIANT
    VISION_NUM_LAYERS NUM_LAYERS NUM_EXPERTS ATTN_CADENCE MTP_NUM_LAYERS MTP_LOSS_SCALING_FACTOR MBS GBS TP EP PP CP
    FORCE_LOAD_BALANCING SEQ_LEN USE_PACKED_SEQUENCE RECOMPUTE RECOMPUTE_VISION USE_FSDP TRAIN_ITERS SAVE_INTERVAL
    SAVE_CHECKPOINT CKPT_LOAD CKPT_FORMAT CKPT_RESUME CKPT_OVERRIDE_SCHEDULER TOKENIZER_MODEL TOKENIZER_TYPE VOCAB_SIZE
    HF_PROCESSOR_PATH DATASET_PROVIDER LINEAR_NUM_KEY_HEADS WANDB_PROJECT MEGATRON_LM_PATH ROOT_DIR
    TENSORBOARD_LOGS_PATH PROFILE PROFILE_STEP_START PROFILE_STEP_END PROFILE_RANKS'

# has_all PAGE: each variable is in the first column of a row
has_all() {
    status=0
    for name in $variables; do
        grep -E "^\|[^|]*\`$name(=1)?\`" "$1" > /dev/null || { echo "no row for $name"; status=1; }
    done
    return $status
}

# keys PAGE: "section key" for each `[section] key`
keys() { grep -o '`\[[a-z]*[^]`]*\] [a-z_]*' "$1" | tr -d '`' | sed 's/^\[\(.*\)\] /\1 /' | sort -u; }

# exist: each of them, read from standard input, is in what the program prints of itself
exist() {
    {
        "$ST_BUILDDIR/strata" inspect --spec
        for plugin in gated_delta_net moe qwen35_vision mtp; do "$ST_BUILDDIR/strata" inspect "$plugin"; done
        "$ST_BUILDDIR/strata" inspect mock
    } > "$scratch/known"
    status=0
    while read -r section key; do
        grep -qE "^ +$key( |\$)" "$scratch/known" || { echo "[$section] has no $key"; status=1; }
    done
    return $status
}

must 'every variable of the launcher has a row' has_all "$page"
sed '/ATTN_CADENCE/d' "$page" > "$scratch/short.md"
must_not 'a missing row is found' 'no row for ATTN_CADENCE' has_all "$scratch/short.md"
keys "$page" > "$scratch/keys"
must 'keys are named' test "$(wc -l < "$scratch/keys")" -gt 20
must 'all of them exist' exist < "$scratch/keys"
echo 'stack blocs' > "$scratch/wrong"
must_not 'a wrong key is found' '[stack] has no blocs' exist < "$scratch/wrong"
tap_done
