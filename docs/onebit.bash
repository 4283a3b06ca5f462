# Completion of onebit for bash.
_onebit() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    local commands="info tokenize detokenize logits ppl"
    local options="--model --threads --backend --act --kv --ctx --chunk --cpu --rope --template
        --seed --json --quiet --verbose --help"
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
    *)
        case ${COMP_WORDS[1]} in
        info) options="$options --tensors --plan --memory" ;;
        tokenize) options="$options --special" ;;
        logits) options="$options --tokens --output --hidden" ;;
        ppl) options="$options --tokens --file --window" ;;
        help) options=$commands ;;
        esac
        case $word in
        -*) ;;
        *)
            [ "${COMP_WORDS[1]}" = help ] || options=""
            ;;
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
}
complete -o default -F _onebit onebit
