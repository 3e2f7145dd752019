"""Makes the index of the shard in a folder: `python -m waystation.memory.qdrant.optimiser PARENT_PID FOLDER`."""

import os
import sys

import qdrant_edge as qe

from waystation.security.confinement import end_with

OTHERS_FIRST = 10
"""So nice it is to whatever else wants the processor."""

if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    os.nice(OTHERS_FIRST)
    shard = qe.EdgeShard.load(sys.argv[2])
    shard.optimize()
    shard.close()
