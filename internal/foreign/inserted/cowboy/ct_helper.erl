%% Stands in for a library of Cowboy's author that his suites call.
-module(ct_helper).
-export([all/1, config/2, doc/1, get_certs_from_ets/0, get_remote_pid_tcp/1]).

%% all returns the names of a suite's tests.
all(Suite) ->
	lists:usort([Name || {Name, 1} <- Suite:module_info(exports), test(atom_to_list(Name))]).

test(Name) ->
	not lists:member(Name, ["module_info", "all"])
		andalso not lists:any(fun(Prefix) -> lists:prefix(Prefix, Name) end, ["init_", "end_", "do_"]).

config(Key, Config) -> element(2, lists:keyfind(Key, 1, Config)).

doc(_) -> ok.

get_certs_from_ets() -> [{verify, verify_none}].

%% A test that wants the server's process has another server here.
get_remote_pid_tcp(_) -> error(another_server).
