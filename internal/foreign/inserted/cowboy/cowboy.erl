%% Stands in for the module of Cowboy that starts servers: each is a process of the program that FOREIGN_SERVER names.
-module(cowboy).
-export([start_clear/3, start_tls/3, stop_listener/1, port/1]).

start_clear(Name, _, Options) -> start(Name, arguments(Options)).
start_tls(Name, _, Options) -> start(Name, ["-tls" | arguments(Options)]).

start(Name, Arguments) ->
	Self = self(),
	Pid = spawn(fun() ->
		Port = open_port({spawn_executable, os:getenv("FOREIGN_SERVER")}, [{args, Arguments}, {line, 100}]),
		receive {Port, {data, {eol, Line}}} -> Self ! {self(), list_to_integer(Line)} end,
		serve(Port)
	end),
	receive {Pid, Number} -> persistent_term:put({?MODULE, Name}, {Pid, Number}) end,
	{ok, Pid}.

%% The test of which a request came that must not have come gets the message that Cowboy's handler sends.
serve(Port) ->
	receive
		{Port, {data, {eol, "reached " ++ Test}}} ->
			Pid = list_to_pid(Test),
			Pid ! {Pid, self(), init, reached, undefined},
			serve(Port);
		stop -> port_close(Port)
	end.

port(Name) -> element(2, persistent_term:get({?MODULE, Name})).

stop_listener(Name) ->
	element(1, persistent_term:get({?MODULE, Name})) ! stop,
	ok.

arguments(Options) -> lists:flatmap(fun argument/1, maps:to_list(Options)).

argument({env, #{dispatch := Hosts}}) ->
	case lists:any(fun({Host, _}) -> Host =:= '_' orelse hd(Host) =:= $[ end, Hosts) of
		true -> [];
		false -> ["-hosts", lists:join(",", [Host || {Host, _} <- Hosts])]
	end;
argument({max_keepalive, N}) -> ["-requests", integer_to_list(N)];
argument({max_concurrent_streams, N}) when is_integer(N) -> ["-streams", integer_to_list(N)];
argument({enable_connect_protocol, true}) -> ["-connect"];
argument({stream_handlers, [cowboy_compress_h | _]}) -> ["-compress"];
argument(_) -> [].
