"""The talent show in PostgreSQL and in Redis, each vote as one function on the server.

    PostgreSQL   a PL/pgSQL function a vote; a transaction a vote, or a thousand votes
    Redis        a Lua script a vote; a vote a script, or a thousand votes

Both keep what the show keeps: votes and ballots, the last hundred votes, three boards. Redis orders its sorted sets by
one number, so a contestant's place among equals is in the last digits of the score.
"""

from __future__ import annotations

from typing import Any

from penstock.workloads.leaderboard import CONTESTANTS, PLACES, WINDOW, ByHand

TABLES = """
create table contestant (id int primary key, votes int not null default 0, trending int not null default 0);
create table ballot (phone bigint primary key, contestant int not null);
create index on ballot (contestant);
create table board (name text, place int, contestant int, primary key (name, place));
create table show (id int primary key, votes int not null);
create table recent (number int primary key, contestant int not null);
insert into show values (0, 0);

create function put(board text, ids int[]) returns void language sql as $$
    insert into board select put.board, place, id from unnest(ids) with ordinality as t (id, place)
        on conflict (name, place) do update set contestant = excluded.contestant
$$;

create function vote(who bigint, whom int, every int) returns text language plpgsql as $$
declare
    n int;
    old int;
    last int;
begin
    update contestant set votes = votes + 1, trending = trending + 1 where id = whom;
    if not found then
        return 'missing Contestant';
    end if;
    insert into ballot values (who, whom) on conflict do nothing;
    if not found then
        update contestant set votes = votes - 1, trending = trending - 1 where id = whom;
        return 'exists Ballot';
    end if;
    update show set votes = votes + 1 returning votes into n;
    insert into recent values (n, whom);
    delete from recent where number = n - {window} returning contestant into old;
    if found then
        update contestant set trending = trending - 1 where id = old;
    end if;
    perform put('top', array(select id from contestant order by votes desc, id limit {places}));
    perform put('bottom', array(select id from contestant order by votes, id limit {places}));
    perform put('trending', array(select id from contestant order by trending desc, id limit {places}));
    if n % every = 0 then
        select id into last from contestant order by votes, id limit 1;
        delete from ballot where contestant = last;
        delete from contestant where id = last;
    end if;
    return 'committed';
end $$;
""".replace("{window}", str(WINDOW)).replace("{places}", str(PLACES))

# ARGV: every, then phone and contestant of each vote. In 'top' a higher score is a better place, in 'bottom' a lower.
SCRIPT = """
local every, out = tonumber(ARGV[1]), {}
local function change(whom, votes, trending)
    redis.call('zincrby', 'top', votes * {wide}, whom)
    redis.call('zincrby', 'bottom', votes * {wide}, whom)
    redis.call('zincrby', 'trending', trending * {wide}, whom)
end
local function put(name, ids)
    for place, id in ipairs(ids) do redis.call('hset', 'board:' .. name, place, id) end
end
for k = 2, #ARGV, 2 do
    local who, whom = ARGV[k], ARGV[k + 1]
    if not redis.call('zscore', 'top', whom) then
        out[#out + 1] = 'missing Contestant'
    elseif redis.call('hsetnx', 'ballots', who, whom) == 0 then
        out[#out + 1] = 'exists Ballot'
    else
        redis.call('sadd', 'ballots:' .. whom, who)
        change(whom, 1, 1)
        local n = redis.call('incr', 'votes')
        if redis.call('rpush', 'recent', whom) > {window} then
            local old = redis.call('lpop', 'recent')
            if redis.call('zscore', 'top', old) then change(old, 0, -1) end
        end
        put('top', redis.call('zrevrange', 'top', 0, {places} - 1))
        put('bottom', redis.call('zrange', 'bottom', 0, {places} - 1))
        put('trending', redis.call('zrevrange', 'trending', 0, {places} - 1))
        if n % every == 0 then
            local last = redis.call('zrange', 'bottom', 0, 0)[1]
            for _, phone in ipairs(redis.call('smembers', 'ballots:' .. last)) do
                redis.call('hdel', 'ballots', phone)
            end
            redis.call('del', 'ballots:' .. last)
            for _, name in ipairs({'top', 'bottom', 'trending'}) do redis.call('zrem', name, last) end
        end
        out[#out + 1] = 'committed'
    end
end
return out
"""
WIDE = 1 << 10  # contestants are numbered below this
SCRIPT = SCRIPT.replace("{window}", str(WINDOW)).replace("{places}", str(PLACES)).replace("{wide}", str(WIDE))


def state_of(hand: ByHand) -> dict[str, Any]:
    """What all arms are compared by."""
    return {
        "contestants": {c: tuple(counts) for c, counts in hand.contestants.items()},
        "ballots": len(hand.ballots),
        "boards": hand.boards,
    }


def of_penstock(db: Any) -> dict[str, Any]:
    rows = db.table("Contestant").to_pylist()
    boards = {(row["name"], row["place"]): row["contestant"] for row in db.table("Board").to_pylist()}
    return {
        "contestants": {row["id"]: (row["votes"], row["trending"]) for row in rows},
        "ballots": db.table("Ballot").num_rows,
        "boards": boards,
    }


class Postgres:
    def __init__(self, where: dict[str, Any]) -> None:
        import psycopg

        self.connection = psycopg.connect(**where, autocommit=True)
        self.connection.execute(TABLES)
        with self.connection.cursor() as cursor:
            cursor.executemany("insert into contestant values (%s)", [(i,) for i in range(CONTESTANTS)])
        self.connection.execute("vacuum analyze")

    def vote_by_vote(self, votes: list[tuple[int, int]], every: int) -> None:
        cursor = self.connection.cursor()
        for phone, contestant in votes:
            cursor.execute("select vote(%s, %s, %s)", (phone, contestant, every))

    def by_thousands(self, votes: list[tuple[int, int]], every: int) -> None:
        """One statement and one commit for a thousand votes, in order."""
        cursor = self.connection.cursor()
        for start in range(0, len(votes), 1000):
            phones, contestants = zip(*votes[start : start + 1000], strict=True)
            cursor.execute(
                "select vote(p, c, %s) from (select * from unnest(%s::bigint[], %s::int[])"
                " with ordinality as t (p, c, k) order by k) as v",
                (every, list(phones), list(contestants)),
            )

    def state(self) -> dict[str, Any]:
        def fetch(query: str) -> list[Any]:
            return self.connection.execute(query).fetchall()

        return {
            "contestants": {i: (votes, trending) for i, votes, trending in fetch("select * from contestant")},
            "ballots": fetch("select count(*) from ballot")[0][0],
            "boards": {(name, place): c for name, place, c in fetch("select * from board")},
        }

    def close(self) -> None:
        self.connection.close()


class Redis:
    def __init__(self, where: dict[str, Any]) -> None:
        import redis

        self.client = redis.Redis(**where, decode_responses=True)
        # Equal votes: the lower number is first, from both ends of the boards.
        high = {str(i): WIDE - 1 - i for i in range(CONTESTANTS)}
        self.client.zadd("top", high)
        self.client.zadd("trending", high)
        self.client.zadd("bottom", {str(i): i for i in range(CONTESTANTS)})
        self.script = self.client.register_script(SCRIPT)

    def vote_by_vote(self, votes: list[tuple[int, int]], every: int) -> None:
        for vote in votes:
            self.script(args=[every, *vote])

    def by_thousands(self, votes: list[tuple[int, int]], every: int) -> None:
        for start in range(0, len(votes), 1000):
            self.script(args=[every, *(number for vote in votes[start : start + 1000] for number in vote)])

    def state(self) -> dict[str, Any]:
        trending = dict(self.client.zrange("trending", 0, -1, withscores=True))
        votes = self.client.zrange("top", 0, -1, withscores=True)
        boards = {}
        for name in ("top", "bottom", "trending"):
            boards |= {(name, int(k)): int(v) for k, v in self.client.hgetall(f"board:{name}").items()}
        return {
            "contestants": {int(c): (int(v) // WIDE, int(trending[c]) // WIDE) for c, v in votes},
            "ballots": self.client.hlen("ballots"),
            "boards": boards,
        }

    def close(self) -> None:
        self.client.close()
