# Completion of onebit for bash.
_onebit() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    local commands="run chat session info render tokenize detokenize logits ppl bench synth check"
    local sampling="--temp --top-k --top-p --min-p --repeat-penalty --presence-penalty
        --frequency-penalty --dry --stop --logit-bias --logprobs --ignore-eos --predict"
    local compute="--threads --backend --act --kv --ctx --chunk --cpu --rope"
    local options="--json --quiet --verbose --help"
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$commands help --help --version" -- "$word")
        return
    fi
    case $before in
    --backend) options="auto cpu cuda webgpu" ;;
    --act) options="int8 f32" ;;
    --kv) options="f16 f32 q8 q4" ;;
    --cpu) options="auto ref avx2 avx512 neon dotprod" ;;
    --rope) options="file plain" ;;
    --think) options="on off" ;;
    --shape) options="bonsai-27b bonsai-8b bonsai-4b bonsai-1.7b" ;;
    --format) options="q1_0 q2_0 q2_0_g128 q4_0 q8_0" ;;
    *)
        case ${COMP_WORDS[1]} in
        run) options="$options --model $compute --seed $sampling --prompt --file --special --session
            --context-shift" ;;
        chat) options="$options --model $compute --template --seed $sampling --system --think --session" ;;
        session) [ "$COMP_CWORD" -eq 2 ] && options="list show save load rm" || options="$options --dir" ;;
        render) options="$options --model --template --think --preserve-thinking" ;;
        bench) options="$options --model $compute --seed --shape --format --prefill --decode --depth --repeat --batch" ;;
        synth) options="$options --seed --shape --format" ;;
        check) options="$options --model $compute --tokens --file --window --verdict" ;;
        info) options="$options --model $compute --tensors --plan --memory" ;;
        tokenize) options="$options --model --special" ;;
        detokenize) options="$options --model" ;;
        logits) options="$options --model $compute --tokens --output --hidden" ;;
        ppl) options="$options --model $compute --tokens --file --window" ;;
        help) options=$commands ;;
        esac
        case $word in
        -*) ;;
        *)
            case ${COMP_WORDS[1]}/$COMP_CWORD in
            help/* | session/2) ;;
            *) options="" ;;
            esac
            ;;
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
}
complete -o default -F _onebit onebit
