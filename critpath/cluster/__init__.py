"""VectorTable -> Clustering -> ClusterPairs (Algorithm 2) -> Outliers."""
