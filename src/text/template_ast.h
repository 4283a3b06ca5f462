/* The syntax tree of a template. Nodes live in the heap of the template and are never changed after
 * parsing, so any number of threads may render it. */
#ifndef OB_TEXT_TEMPLATE_AST_H
#define OB_TEXT_TEMPLATE_AST_H

#include "text/template_lex.h"

enum ob_node_kind {
    /* expressions            first        second      third      items */
    OB_NODE_CONST,      /* value */
    OB_NODE_NAME,       /* name */
    OB_NODE_TUPLE,      /*                                      members */
    OB_NODE_LIST,       /*                                      members */
    OB_NODE_DICT,       /*                                      key, value, key, value ... */
    OB_NODE_NOT,        /* operand */
    OB_NODE_NEGATIVE,   /* operand */
    OB_NODE_POSITIVE,   /* operand */
    OB_NODE_AND,        /* left         right */
    OB_NODE_OR,         /* left         right */
    OB_NODE_ARITHMETIC, /* left         right                   (op) */
    OB_NODE_CONCAT,     /*                                      the sides of ~ */
    OB_NODE_COMPARE,    /* left                                 OPERANDs */
    OB_NODE_OPERAND,    /* right                                (op) */
    OB_NODE_CONDITION,  /* test         if true     if false or NULL */
    OB_NODE_ATTRIBUTE,  /* object                               value is the name */
    OB_NODE_SUBSCRIPT,  /* object       index or SLICE */
    OB_NODE_SLICE,      /* start        stop        step, each may be NULL */
    OB_NODE_CALL,       /* callee                               ARGUMENTs */
    OB_NODE_FILTER,     /* input or NULL: what a block made     ARGUMENTs; filter, name */
    OB_NODE_TEST,       /* input                                ARGUMENTs; test, name */
    OB_NODE_ARGUMENT,   /* value; op is an ob_argument_kind, `value` the name of a keyword */
    /* statements */
    OB_NODE_TEXT,       /* value */
    OB_NODE_PRINT,      /* expression */
    OB_NODE_IF,         /* test; body; orelse: one IF for elif, or the nodes of else */
    OB_NODE_FOR,        /* target       iterable    filter or NULL; body, orelse, flag: recursive */
    OB_NODE_SET,        /* target       expression */
    OB_NODE_SET_BLOCK,  /* target       filters or NULL; body */
    OB_NODE_MACRO,      /* name; items: PARAMETERs; body; flag: see ob_macro_uses */
    OB_NODE_PARAMETER,  /* default or NULL; name */
    OB_NODE_CALL_BLOCK, /* CALL         MACRO made of the body */
    OB_NODE_FILTER_BLOCK,  /* filters; body */
    OB_NODE_WITH,          /* items: target, value, target, value ...; body */
    OB_NODE_SCOPE,         /* body: a block with names of its own */
    OB_NODE_GROUP,         /* body: statements that belong together */
    OB_NODE_NAMESPACE_REF, /* target only: name and value (the attribute) */
    OB_NODE_BREAK,
    OB_NODE_CONTINUE,
};

enum ob_operator {
    OB_OP_ADD,
    OB_OP_SUB,
    OB_OP_MUL,
    OB_OP_DIV,
    OB_OP_FLOORDIV,
    OB_OP_MOD,
    OB_OP_POW,
    OB_OP_EQ,
    OB_OP_NE,
    OB_OP_LT,
    OB_OP_LE,
    OB_OP_GT,
    OB_OP_GE,
    OB_OP_IN,
    OB_OP_NOT_IN,
};

enum ob_argument_kind { OB_ARG_PLAIN, OB_ARG_KEYWORD, OB_ARG_LIST, OB_ARG_DICT };

/* Special names that a macro's body mentions; only then they exist in it. */
enum ob_macro_uses { OB_USES_CALLER = 1, OB_USES_VARARGS = 2, OB_USES_KWARGS = 4 };

/* Symbols that every template has. */
enum ob_special_symbol { OB_SYMBOL_LOOP, OB_SYMBOL_CALLER, OB_SYMBOL_VARARGS, OB_SYMBOL_KWARGS };

struct ob_filter;
struct ob_test;

struct ob_node {
    uint8_t kind, op, flags;
    uint32_t at;          /* offset in the source, for messages */
    uint32_t name;        /* index of a symbol */
    struct ob_node *next; /* in the list this node belongs to */
    struct ob_node *first, *second, *third;
    struct ob_node *items;  /* list */
    struct ob_node *body;   /* list of statements */
    struct ob_node *orelse; /* list of statements */
    struct ob_value value;
    union {
        const struct ob_filter *filter; /* NULL: unknown, an error when it is reached */
        const struct ob_test *test;
    } as;
};

struct ob_template {
    struct ob_heap heap;
    struct ob_source source;
    struct ob_node *body;   /* list of statements */
    struct ob_str *symbols; /* [n_symbols] the names of variables and keywords */
    size_t n_symbols, symbols_capacity;
};

/* Fill body and symbols from the source. Fails with OB_BAD_FILE, OB_UNSUPPORTED or OB_NO_MEMORY. */
ob_status ob_template_parse(struct ob_template *tpl, struct ob_error *err);

#endif
