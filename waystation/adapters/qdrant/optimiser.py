"""Makes the index of the shard in a folder: `python -m waystation.adapters.qdrant.optimiser FOLDER`."""

import os
import sys

import qdrant_edge as qe

OTHERS_FIRST = 10
"""So nice it is to whatever else wants the processor."""

if __name__ == "__main__":
    os.nice(OTHERS_FIRST)
    shard = qe.EdgeShard.load(sys.argv[1])
    shard.optimize()
    shard.close()
