"""Jobs on machines of one owner, which a Dask scheduler knows. The only room that imports Dask."""
