"""Who may import whom: the folders of the package stand in one order, and each imports only those before it."""

import tables  # docs/tables.py reads the imports from the code

ORDER = ["graph", "algorithms", "kernels", "engines", "routing", "beliefs"]
ORDER += ["nn", "pyg", "trace", "images", "explore", "cli"]
APPLICATION = {"images", "explore", "cli", "viz"}
NOT_IN_THE_LIBRARY = {"matplotlib", "torchvision", "tyro", "sklearn", "PIL", "safetensors"}


def test_folders_import_only_folders_before_them():
    for room, needs in tables.rooms().items():
        assert "viz" not in needs or room in ("trace", *APPLICATION), room
        if room in ORDER:
            assert needs & set(ORDER) <= set(ORDER[: ORDER.index(room)]), room
        elif room not in APPLICATION:
            assert not needs & (set(ORDER) | APPLICATION), room


def test_the_library_imports_no_library_of_the_application():
    for name, file in tables.modules().items():
        room = name.split(".")[1:2]
        if room and room[0] not in APPLICATION:
            assert not tables.foreign(file) & NOT_IN_THE_LIBRARY, name


def test_viz_imports_no_torch_no_network_and_no_data_set():
    known = tables.modules()
    for name in (name for name in known if name.startswith("graphcaps.viz")):
        rooms = {target.split(".")[1] for target in tables.imported_by(name, known) if target.count(".")}
        assert not rooms & (set(ORDER) - {"trace"}) and "torch" not in tables.foreign(known[name]), name
