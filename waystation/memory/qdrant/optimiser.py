"""Builds the index of the shard in a folder: `python -m waystation.memory.qdrant.optimiser PARENT_PID FOLDER`."""

import os
import sys

import qdrant_edge as qe

from waystation.security.confinement import exit_with_parent

PROCESS_NICENESS = 10
"""Niceness of the process towards everything else that needs the processor."""

if __name__ == "__main__":
    exit_with_parent(int(sys.argv[1]))
    os.nice(PROCESS_NICENESS)
    shard = qe.EdgeShard.load(sys.argv[2])
    shard.optimize()
    shard.close()
