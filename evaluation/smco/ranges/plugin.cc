// A plug-in for GCC: each function that assigns integer variables gets a copy whose assignments
// are told to the monitor, and a distributor that chooses between the two at every call.
//
// gcc -fplugin=ranges.so -fplugin-arg-ranges-table=FILE: functions and variables, one a line.
#include "gcc-plugin.h"
#include "plugin-version.h"

#include "backend.h"
#include "tree.h"
#include "gimple.h"
#include "tree-pass.h"
#include "ssa.h"
#include "context.h"
#include "cgraph.h"
#include "stringpool.h"
#include "attribs.h"
#include "fold-const.h"
#include "cfghooks.h"
#include "cfgloop.h"
#include "gimplify.h"
#include "gimple-iterator.h"
#include "tree-cfg.h"
#include "tree-into-ssa.h"
#include "tree-dfa.h"
#include "tree-inline.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <sys/file.h>
#include <vector>

int plugin_is_GPL_compatible;

namespace {

constexpr int GATE_WORDS = 4; // calls, open, monitored, unused: see monitor.c
FILE *table;
int functions, variables; // in the table so far, of all files

tree gates, update;

tree variable_of(gimple *statement) {
  // The user's integer variable that a statement assigns, or nothing.
  tree left = gimple_get_lhs(statement);
  if (!left || gimple_clobber_p(statement) || TREE_THIS_VOLATILE(left))
    return NULL_TREE;
  tree variable = TREE_CODE(left) == SSA_NAME ? SSA_NAME_VAR(left) : left;
  if (!variable || (TREE_CODE(variable) != VAR_DECL && TREE_CODE(variable) != PARM_DECL))
    return NULL_TREE;
  if (!DECL_NAME(variable) || DECL_ARTIFICIAL(variable))
    return NULL_TREE;
  tree type = TREE_TYPE(left);
  if (!INTEGRAL_TYPE_P(type) || TYPE_PRECISION(type) > 64)
    return NULL_TREE;
  return stmt_ends_bb_p(statement) ? NULL_TREE : variable;
}

bool assigns_integers(function *fn) {
  basic_block block;
  FOR_EACH_BB_FN(block, fn)
  for (gimple_stmt_iterator at = gsi_start_bb(block); !gsi_end_p(at); gsi_next(&at))
    if (variable_of(gsi_stmt(at)))
      return true;
  return false;
}

bool can_be_copied(cgraph_node *node) {
  tree decl = node->decl;
  return node->has_gimple_body_p() && !DECL_EXTERNAL(decl) && !node->alias && !node->thunk &&
         !stdarg_p(TREE_TYPE(decl)) && !lookup_attribute("always_inline", DECL_ATTRIBUTES(decl)) &&
         (VOID_TYPE_P(TREE_TYPE(DECL_RESULT(decl))) ||
          is_gimple_reg_type(TREE_TYPE(DECL_RESULT(decl)))) &&
         tree_versionable_function_p(decl);
}

void tell_updates(function *fn, int number) {
  std::map<tree, int> numbers;
  basic_block block;
  FOR_EACH_BB_FN(block, fn)
  for (gimple_stmt_iterator at = gsi_start_bb(block); !gsi_end_p(at); gsi_next(&at)) {
    gimple *statement = gsi_stmt(at);
    tree variable = variable_of(statement);
    if (!variable)
      continue;
    if (!numbers.count(variable)) {
      numbers[variable] = variables++;
      bool local = DECL_CONTEXT(variable) && TREE_CODE(DECL_CONTEXT(variable)) == FUNCTION_DECL;
      fprintf(table, "variable %d %d %s %s:%d\n", numbers[variable], number,
              IDENTIFIER_POINTER(DECL_NAME(variable)), local ? "local" : "global",
              DECL_SOURCE_LINE(variable));
    }
    tree value = gimple_get_lhs(statement);
    location_t where = gimple_location(statement);
    if (TREE_CODE(value) != SSA_NAME) {
      gassign *load = gimple_build_assign(make_ssa_name(TREE_TYPE(value)), unshare_expr(value));
      gimple_set_location(load, where);
      value = gimple_assign_lhs(load);
      gsi_insert_after(&at, load, GSI_NEW_STMT);
    }
    gassign *widened = gimple_build_assign(make_ssa_name(long_integer_type_node), NOP_EXPR, value);
    gimple_set_location(widened, where);
    gsi_insert_after(&at, widened, GSI_NEW_STMT);
    gcall *call = gimple_build_call(update, 2, build_int_cst(unsigned_type_node, numbers[variable]),
                                    gimple_assign_lhs(widened));
    gimple_set_location(call, where);
    gsi_insert_after(&at, call, GSI_NEW_STMT);
  }
}

tree gate_word(int number, int word, bool changes) {
  // An element of the array of gates; one that the monitor changes is read anew each time.
  tree element = build4(ARRAY_REF, long_integer_type_node, gates,
                        build_int_cst(integer_type_node, number * GATE_WORDS + word), NULL_TREE,
                        NULL_TREE);
  if (changes)
    TREE_THIS_VOLATILE(element) = TREE_SIDE_EFFECTS(element) = 1;
  return element;
}

void count_one(gimple_stmt_iterator *at, int number, int word) {
  gassign *load = gimple_build_assign(make_ssa_name(long_integer_type_node),
                                      gate_word(number, word, false));
  gsi_insert_after(at, load, GSI_NEW_STMT);
  gassign *sum = gimple_build_assign(make_ssa_name(long_integer_type_node), PLUS_EXPR,
                                     gimple_assign_lhs(load), build_one_cst(long_integer_type_node));
  gsi_insert_after(at, sum, GSI_NEW_STMT);
  gsi_insert_after(at, gimple_build_assign(gate_word(number, word, false), gimple_assign_lhs(sum)),
                   GSI_NEW_STMT);
}

void add_distributor(function *fn, cgraph_node *copy, int number) {
  basic_block choose = split_edge(single_succ_edge(ENTRY_BLOCK_PTR_FOR_FN(fn)));
  edge original = single_succ_edge(choose);
  basic_block monitored = create_empty_bb(choose);
  if (current_loops)
    add_bb_to_loop(monitored, current_loops->tree_root);

  gimple_stmt_iterator at = gsi_last_bb(choose);
  count_one(&at, number, 0);
  gassign *open = gimple_build_assign(make_ssa_name(long_integer_type_node),
                                      gate_word(number, 1, true));
  gsi_insert_after(&at, open, GSI_NEW_STMT);
  gcall *expected = gimple_build_call(builtin_decl_explicit(BUILT_IN_EXPECT), 2,
                                      gimple_assign_lhs(open),
                                      build_zero_cst(long_integer_type_node));
  gimple_call_set_lhs(expected, make_ssa_name(long_integer_type_node));
  gsi_insert_after(&at, expected, GSI_NEW_STMT);
  gsi_insert_after(&at,
                   gimple_build_cond(NE_EXPR, gimple_call_lhs(expected),
                                     build_zero_cst(long_integer_type_node), NULL_TREE, NULL_TREE),
                   GSI_NEW_STMT);
  original->flags = (original->flags & ~EDGE_FALLTHRU) | EDGE_FALSE_VALUE;
  make_edge(choose, monitored, EDGE_TRUE_VALUE);

  at = gsi_last_bb(monitored);
  count_one(&at, number, 2);
  auto_vec<tree> arguments;
  for (tree parameter = DECL_ARGUMENTS(fn->decl); parameter; parameter = DECL_CHAIN(parameter)) {
    tree value = parameter;
    if (is_gimple_reg(parameter))
      value = get_or_create_ssa_default_def(fn, parameter);
    else if (is_gimple_reg_type(TREE_TYPE(parameter))) {
      gassign *load = gimple_build_assign(make_ssa_name(TREE_TYPE(parameter)), parameter);
      gsi_insert_after(&at, load, GSI_NEW_STMT);
      value = gimple_assign_lhs(load);
    }
    arguments.safe_push(value);
  }
  gcall *call = gimple_build_call_vec(copy->decl, arguments);
  tree type = TREE_TYPE(DECL_RESULT(fn->decl)), result = NULL_TREE;
  if (!VOID_TYPE_P(type)) {
    result = make_ssa_name(type);
    gimple_call_set_lhs(call, result);
  }
  gsi_insert_after(&at, call, GSI_NEW_STMT);
  gsi_insert_after(&at, gimple_build_return(result), GSI_NEW_STMT);
  make_edge(monitored, EXIT_BLOCK_PTR_FOR_FN(fn), 0);
}

template <typename Change> void change_body(cgraph_node *node, Change change) {
  function *fn = DECL_STRUCT_FUNCTION(node->decl);
  push_cfun(fn);
  change(fn);
  free_dominance_info(CDI_DOMINATORS);
  free_dominance_info(CDI_POST_DOMINATORS);
  mark_virtual_operands_for_renaming(fn);
  update_ssa(TODO_update_ssa);
  cgraph_edge::rebuild_edges();
  pop_cfun();
}

void declare_monitor() {
  if (gates)
    return;
  gates = build_decl(UNKNOWN_LOCATION, VAR_DECL, get_identifier("smco_gates"),
                     build_array_type_nelts(long_integer_type_node, 1 << 16));
  TREE_PUBLIC(gates) = DECL_EXTERNAL(gates) = TREE_USED(gates) = DECL_ARTIFICIAL(gates) = 1;
  varpool_node::get_create(gates);
  update = build_fn_decl("smco_update", build_function_type_list(void_type_node, unsigned_type_node,
                                                               long_integer_type_node, NULL_TREE));
}

const pass_data description = {SIMPLE_IPA_PASS, "ranges", OPTGROUP_NONE, TV_NONE, PROP_ssa | PROP_cfg,
                               0, 0, 0, 0};

struct copy_functions : simple_ipa_opt_pass {
  copy_functions(gcc::context *context) : simple_ipa_opt_pass(description, context) {}
  unsigned int execute(function *) final override {
    std::vector<cgraph_node *> chosen;
    cgraph_node *node;
    FOR_EACH_FUNCTION_WITH_GIMPLE_BODY(node) {
      if (can_be_copied(node) && assigns_integers(DECL_STRUCT_FUNCTION(node->decl)))
        chosen.push_back(node);
    }
    declare_monitor();
    for (cgraph_node *each : chosen) {
      int number = functions++;
      fprintf(table, "function %d %s\n", number, IDENTIFIER_POINTER(DECL_NAME(each->decl)));
      cgraph_node *copy =
          each->create_version_clone_with_body(vNULL, NULL, NULL, NULL, NULL, "monitored");
      DECL_UNINLINABLE(copy->decl) = 1;
      DECL_ATTRIBUTES(copy->decl) = tree_cons(get_identifier("noinline"), NULL_TREE,
                                              tree_cons(get_identifier("noclone"), NULL_TREE,
                                                        DECL_ATTRIBUTES(copy->decl)));
      DECL_DECLARED_INLINE_P(copy->decl) = 0;
      change_body(copy, [&](function *fn) { tell_updates(fn, number); });
      change_body(each, [&](function *fn) { add_distributor(fn, copy, number); });
    }
    fflush(table);
    return 0;
  }
};

bool open_table(const char *path) {
  // Numbers go on from file to file: one compiler at a time.
  table = fopen(path, "a+");
  if (!table || flock(fileno(table), LOCK_EX))
    return false;
  char word[16], rest[4096];
  rewind(table);
  while (fscanf(table, "%15s%4095[^\n]", word, rest) == 2)
    (strcmp(word, "function") ? variables : functions)++;
  return true;
}

} // namespace

int plugin_init(plugin_name_args *info, plugin_gcc_version *version) {
  if (!plugin_default_version_check(version, &gcc_version)) {
    fprintf(stderr, "ranges: made for another version of GCC\n");
    return 1;
  }
  for (int i = 0; i < info->argc; i++)
    if (!strcmp(info->argv[i].key, "table") && !open_table(info->argv[i].value))
      return 1;
  if (!table) {
    fprintf(stderr, "ranges: -fplugin-arg-%s-table=FILE is needed\n", info->base_name);
    return 1;
  }
  register_pass_info pass = {new copy_functions(g), "build_ssa_passes", 1, PASS_POS_INSERT_AFTER};
  register_callback(info->base_name, PLUGIN_PASS_MANAGER_SETUP, NULL, &pass);
  return 0;
}
