%% Runs the suites that FOREIGN_SUITES names, and writes what comes of each test to the file that FOREIGN_RESULTS names: a line of the
%% suite, the group and the test with slashes between, a tab, and "ok" or what went wrong.
-module(foreign_results).
-export([run/0, init/2, post_end_per_testcase/5, on_tc_fail/4, on_tc_skip/4]).

run() ->
	{ok, _} = application:ensure_all_started(gun),
	load([crypto, asn1, public_key, ssl]),
	_ = ct:run_test([
		{dir, os:getenv("FOREIGN_EBIN")}, {suite, string:lexemes(os:getenv("FOREIGN_SUITES"), " ")}, {auto_compile, false},
		{logdir, os:getenv("FOREIGN_LOGS")}, {ct_hooks, [?MODULE]}
	]),
	halt().

%% Erlang loads a module when it is first called. All clients of the first group over TLS would wait for that, on a busy machine for longer
%% than their 5 seconds.
load(Applications) ->
	lists:foreach(fun(Application) ->
		{ok, Modules} = application:get_key(Application, modules),
		ok = code:ensure_modules_loaded(Modules)
	end, Applications).

init(_, _) ->
	{ok, _} = file:open(os:getenv("FOREIGN_RESULTS"), [write]).

post_end_per_testcase(Suite, Test, Config, Result, File) ->
	case Result of
		{error, _} -> ok; % on_tc_fail follows
		{failed, _} -> ok;
		{timetrap_timeout, _} -> ok;
		{skip, _} -> ok;
		_ -> write(File, Suite, group(Config), Test, ok)
	end,
	{Result, File}.

on_tc_fail(Suite, Test, Reason, File) -> wrong(Suite, Test, Reason, File).
on_tc_skip(Suite, Test, Reason, File) -> wrong(Suite, Test, Reason, File).

wrong(Suite, {Test, Group}, Reason, File) ->
	write(File, Suite, Group, Test, Reason),
	File;
wrong(Suite, Test, Reason, File) -> wrong(Suite, {Test, none}, Reason, File).

group(Config) -> proplists:get_value(name, proplists:get_value(tc_group_properties, Config, []), none).

write(File, Suite, Group, Test, Result) ->
	[Name, _] = string:split(atom_to_list(Suite), "_SUITE"),
	io:format(File, "~s/~s/~s\t~0p~n", [Name, Group, Test, Result]).
