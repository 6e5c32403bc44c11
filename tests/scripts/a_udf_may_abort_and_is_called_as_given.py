"""A udf takes and gives numbers, and aborts where it fails."""

import penstock as ps

app = ps.App("app")


@ps.udf
def score(x, y):
    return x / (1.0 + y)


@app.table
class Player:
    id: int = ps.key()
    rating: float = 0.0


@app.event
class Game:
    ts: int = ps.order()
    player: int
    points: int


@app.transaction
def game(e: Game):
    player = Player.get(e.player)
    player.rating = score(e.points, player.rating)
    return {"rating": player.rating}
