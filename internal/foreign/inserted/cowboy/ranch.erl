%% Stands in for the library by which Cowboy listens.
-module(ranch).
-export([get_port/1]).

get_port(Name) -> cowboy:port(Name).
