"""What every process that reads recordings imports, once: they are forked from one that did."""

# ruff: noqa: F401 - for the processes that are forked
import critpath.executions.find
import critpath.graph.path
import critpath.pipeline.recordings
import critpath.read.recording
import critpath.timeline.replay
