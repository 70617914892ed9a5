%% Stands in for Cowboy's router: its hosts are what cowboy.erl reads of it.
-module(cowboy_router).
-export([compile/1]).

compile(Routes) -> Routes.
